// Changes of etcd's keys, and the transactions that make them.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etcd/etcd.pb.h"

namespace muster::coordinator {

// The new value of each key; nullopt: the key is deleted.
using KeyChanges = std::map<std::string, std::optional<std::string>>;

// The bytes of one transaction, and of one value. etcd's default limit is 1.5 MiB for a request
// (--max-request-bytes).
constexpr size_t kTxnBytesMax = 1 << 20;
constexpr size_t kValueBytesMax = kTxnBytesMax / 2;

// Returns the changes as requests of which each fits into one transaction, with room for a fence
// and two more operations. At least one, which may be empty. Requires that no value is larger than
// kValueBytesMax.
std::vector<etcdserverpb::TxnRequest> split(const KeyChanges& changes);

// Appends the operations of `from` to those of `to`. Many operations become nested transactions,
// because etcd limits the operations of a transaction, but not those of all levels together
// (--max-txn-ops, 128 by default).
void add_operations(etcdserverpb::TxnRequest from, etcdserverpb::TxnRequest& to);

// Append one operation.
void add_put(etcdserverpb::TxnRequest& request, std::string key, std::string value);
void add_delete(etcdserverpb::TxnRequest& request, std::string key);

// Returns the end of the range of all keys that begin with `prefix`. Requires that its last byte is
// not 0xFF.
std::string prefix_end(std::string_view prefix);

}  // namespace muster::coordinator
