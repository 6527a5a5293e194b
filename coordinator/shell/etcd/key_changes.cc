#include "coordinator/shell/etcd/key_changes.h"

#include <algorithm>
#include <utility>

namespace muster::coordinator {
namespace {

namespace api = etcdserverpb;

// The operations of each of the two levels. etcd subtracts those of the outer level from its limit
// for the inner one.
constexpr int kInnerOperations = 64;
constexpr int kGroups = 56;
constexpr int kOperationsMax = kInnerOperations * kGroups;

}  // namespace

std::string prefix_end(std::string_view prefix) {
  std::string end(prefix);
  ++end.back();
  return end;
}

void add_put(api::TxnRequest& request, std::string key, std::string value) {
  api::PutRequest& put = *request.add_success()->mutable_request_put();
  put.set_key(std::move(key));
  put.set_value(std::move(value));
}

void add_delete(api::TxnRequest& request, std::string key) {
  request.add_success()->mutable_request_delete_range()->set_key(std::move(key));
}

std::vector<api::TxnRequest> split(const KeyChanges& changes) {
  std::vector<api::TxnRequest> parts(1);
  size_t bytes = 0;
  for (const auto& [key, value] : changes) {
    // Lengths and types of an operation take some 20 bytes.
    const size_t size = key.size() + (value.has_value() ? value->size() : 0) + 32;
    if (bytes + size > kTxnBytesMax || parts.back().success_size() == kOperationsMax) {
      parts.emplace_back();
      bytes = 0;
    }
    bytes += size;
    if (value.has_value()) {
      add_put(parts.back(), key, *value);
    } else {
      add_delete(parts.back(), key);
    }
  }
  return parts;
}

void add_operations(api::TxnRequest from, api::TxnRequest& to) {
  const int count = from.success_size();
  const bool nested = count > kInnerOperations;
  for (int first = 0; first < count; first += kInnerOperations) {
    api::TxnRequest& target = nested ? *to.add_success()->mutable_request_txn() : to;
    for (int i = first; i < std::min(count, first + kInnerOperations); ++i)
      target.add_success()->Swap(from.mutable_success(i));
  }
}

}  // namespace muster::coordinator
