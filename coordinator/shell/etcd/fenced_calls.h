// Calls to etcd that take effect only while this coordinator leads. Used by one thread at a time.
//
// While etcd does not answer, a call is repeated until it does or until the lease is lost. Errors:
// Aborted, which states that this coordinator is deposed; ResourceExhausted; and refusals of etcd.
#pragma once

#include <cstdint>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/time/time.h"
#include "coordinator/shell/etcd/etcd_client.h"
#include "coordinator/shell/etcd/leader_lease.h"
#include "etcd/etcd.pb.h"

namespace muster::coordinator {

// The end of messages about keys that cannot be read.
inline constexpr char kDamagedHint[] =
    "; restore etcd from a snapshot, or delete all keys of this fleet and import a backup";

class FencedCalls {
 public:
  // Requires that `client` and `lease` outlive this object.
  FencedCalls(EtcdClient& client, const LeaderLease& lease) : client_(client), lease_(lease) {}

  EtcdClient& client() const { return client_; }
  int64_t term() const { return lease_.term(); }
  // Returns the newest revision of etcd that an answer has named.
  int64_t revision() const { return revision_; }

  // Reads. While this coordinator leads, no other program writes, so several calls read one state.
  absl::StatusOr<etcdserverpb::RangeResponse> range(const etcdserverpb::RangeRequest& request);
  // Sends one read, which may take longer than the lease. Returns Aborted without sending it if the
  // lease is lost, and Unavailable if no member answered within `timeout`.
  absl::StatusOr<etcdserverpb::RangeResponse> read_once(const etcdserverpb::RangeRequest& request,
                                                        Duration timeout);

  // Adds the comparison that holds while this coordinator leads.
  void add_fence(etcdserverpb::TxnRequest& request) const;
  // Sends the request once. Returns Aborted without sending it if the lease is lost.
  absl::StatusOr<etcdserverpb::TxnResponse> try_once(const etcdserverpb::TxnRequest& request);
  // Returns whether no other coordinator can have been elected yet.
  bool may_write() const { return lease_.is_held(); }
  // Waits before a call is repeated.
  void pause() const;
  // Returns the error of a deposed coordinator.
  absl::Status deposed() const;

 private:
  Duration call_time() const;

  EtcdClient& client_;
  const LeaderLease& lease_;
  int64_t revision_ = 0;
};

}  // namespace muster::coordinator
