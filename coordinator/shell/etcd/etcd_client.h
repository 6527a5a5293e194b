// Blocking calls to a cluster of etcd, through any of its members. Thread-safe.
//
// A call that a member cannot answer moves to the next one, if it only reads or can be repeated.
// Errors name the member. Their codes are:
//   ResourceExhausted   etcd has no space; nothing was done
//   Unavailable         no member answered in time. Whether a request that writes was executed, or
//                       will be, is unknown
//   others              etcd refused the request; nothing was done
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/time/time.h"

// etcd/etcd.pb.h, which only the sources of this folder include.
namespace etcdserverpb {
class RangeRequest;
class RangeResponse;
class StatusResponse;
class TxnRequest;
class TxnResponse;
}  // namespace etcdserverpb

namespace muster::coordinator {

struct EtcdOptions {
  // Members, separated by commas: "https://a:2379,b:2379". An address without a scheme has that of
  // the first one, whose default is http.
  std::string endpoints;
  // Precedes all keys of this fleet, and must begin with a slash and not end with one. Fleets that
  // share a cluster have different prefixes, none of which is a folder of another.
  std::string prefix = "/muster";
  // PEM files, for https only. Empty ca: the system's certificate authorities. cert and key: the
  // client's certificate, both or none.
  std::string ca;
  std::string cert;
  std::string key;
};

struct EtcdLease {
  int64_t id = 0;
  Duration ttl{0};  // from when etcd received the request
};

class EtcdClient {
 public:
  // Checks the options and reads the files. Does not connect. Errors name the flag (--etcd,
  // --etcd-prefix, --etcd-ca, --etcd-cert, --etcd-key), its value and the correct form.
  static absl::StatusOr<std::unique_ptr<EtcdClient>> create(const EtcdOptions& options);
  ~EtcdClient();

  // Returns a key of this fleet: the prefix, a slash and `name`.
  std::string key(std::string_view name) const;
  // Returns the members' addresses for messages: "https://a:2379,https://b:2379".
  const std::string& endpoints() const { return endpoints_; }

  // Reads are linearizable: they reflect every call that ended before. `timeout` limits a whole
  // call. Each member that does not answer takes an equal part of the time that is left.
  absl::StatusOr<etcdserverpb::RangeResponse> range(const etcdserverpb::RangeRequest& request,
                                                    Duration timeout);
  // Sends the transaction to one member only, and the next transaction to another one if this call
  // returns Unavailable.
  absl::StatusOr<etcdserverpb::TxnResponse> txn(const etcdserverpb::TxnRequest& request,
                                                Duration timeout);
  // Removes the values that were replaced or deleted before `revision`.
  absl::Status compact(int64_t revision, Duration timeout);

  // Grants a lease of at least `ttl`, which is a whole number of seconds.
  absl::StatusOr<EtcdLease> grant_lease(Duration ttl, Duration timeout);
  // Renews the lease, and returns its time to live from when etcd received the request. Returns
  // NotFound if the lease has expired or was revoked.
  absl::StatusOr<Duration> keep_lease_alive(int64_t lease, Duration timeout);
  absl::Status revoke_lease(int64_t lease, Duration timeout);

  // Returns the state of the member that answers first.
  absl::StatusOr<etcdserverpb::StatusResponse> status(Duration timeout);

 private:
  struct Member;

  EtcdClient(std::string prefix, std::string endpoints,
             std::vector<std::unique_ptr<Member>> members);
  using Call = absl::FunctionRef<absl::Status(Member& member, Duration timeout)>;
  absl::Status call_any(Duration timeout, Call call);
  absl::Status call_one(Duration timeout, Call call);

  const std::string prefix_;
  const std::string endpoints_;
  const std::vector<std::unique_ptr<Member>> members_;
  std::atomic<size_t> preferred_{0};  // the member that the next call is sent to first
};

}  // namespace muster::coordinator
