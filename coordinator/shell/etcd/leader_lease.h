// The election of the one coordinator that decides, by a lease of etcd. The key `leader` is
// attached to the lease of the leader, and has its addresses.
//
//   campaign()            renewals fail for nearly the time to live, or etcd
//   ┌─────────┐ elected ┌──────┐ has dropped the lease       ┌──────┐
//   │ standby │ ──────▶ │ held │ ──────────────────────────▶ │ lost │
//   └─────────┘         └──────┘ ─────────── resign() ─────▶ └──────┘
//
// A leader considers itself deposed before etcd can elect another one. This keeps answers from
// being stale; what is stored does not depend on it, because etcd compares the leader's key in each
// transaction (etcd_storage.h). Time includes that of a suspended machine.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/time/time.h"
#include "coordinator/shell/etcd/etcd_client.h"

namespace muster::coordinator {

// etcd's default settings permit no shorter lease than two seconds.
constexpr Duration kLeaderTtl = std::chrono::seconds(3);

// The coordinator that leads, as others can reach it.
struct LeaderRecord {
  std::string grpc;  // host:port for workers and clients
  std::string http;  // host:port of the page; empty: none
  std::string host;  // the machine's name
  int64_t pid = 0;

  bool operator==(const LeaderRecord&) const = default;
};

struct LeaderOptions {
  LeaderRecord self;
  Duration ttl = kLeaderTtl;  // a whole number of seconds
  // Called once, on a thread of the lease, if it is lost otherwise than by resign(). Must not call
  // the lease's methods other than is_held(), and must not block.
  std::function<void(absl::Status reason)> on_lost;
};

// Reads the present leader from etcd. Returns nullopt if there is none.
absl::StatusOr<std::optional<LeaderRecord>> current_leader(EtcdClient& client, Duration timeout);

// One candidacy and one term. Methods are thread-safe, but one thread calls campaign() and
// resign().
class LeaderLease {
 public:
  // Requires that `client` outlives this object.
  LeaderLease(EtcdClient& client, LeaderOptions options);
  // Resigns.
  ~LeaderLease();
  LeaderLease(const LeaderLease&) = delete;
  LeaderLease& operator=(const LeaderLease&) = delete;

  // Blocks until this coordinator is the leader, and then renews the lease on a thread of its own.
  // While etcd does not answer, or has no space for the lease, it warns and tries again. Returns
  // Cancelled soon after `stop` was requested, and the error if etcd refuses the requests (rights,
  // certificates). Called once.
  absl::Status campaign(const std::stop_token& stop);

  // Returns the leader that campaign() saw last, or this coordinator itself while it is the leader.
  // Reads no network.
  std::optional<LeaderRecord> seen_leader() const;

  // Returns whether no other coordinator can have been elected yet.
  bool is_held() const;
  // Returns Aborted if is_held() is false.
  absl::Status check_held() const;
  // Returns the time until is_held() becomes false without a further renewal; zero if it is false.
  Duration time_left() const;
  // Returns the revision in which the leader's key was created: the term's number, which increases
  // with each leader. Requires that campaign() returned OK.
  int64_t term() const { return term_; }
  // Returns the leader's key, which etcd compares.
  const std::string& key() const { return key_; }

  // Renews the lease only while `check` returns OK: a coordinator that cannot work makes room for
  // another one. Its error becomes the reason of the loss. null: always, as at first. Returns when
  // no call of the check before is in progress. `check` must not block.
  void renew_while(std::function<absl::Status()> check);

  // Gives the lease back, so that another coordinator is elected at once. Call it after the storage
  // was closed. May be repeated.
  void resign();

 private:
  enum class Attempt { kElected, kOther };

  absl::StatusOr<Attempt> try_once();
  absl::StatusOr<Attempt> take_key();
  void note_leader(std::optional<LeaderRecord> leader);
  bool wait(const std::stop_token& stop, Duration time);
  absl::Status check_work();
  void renew(const std::stop_token& stop);

  EtcdClient& client_;
  const LeaderOptions options_;
  const std::string key_;
  int64_t lease_ = 0;  // 0: none
  int64_t term_ = 0;
  std::atomic<int64_t> held_until_ns_{0};  // in CLOCK_BOOTTIME
  mutable std::mutex mutex_;
  std::condition_variable_any wakeup_;
  std::optional<LeaderRecord> seen_;  // guarded by mutex_
  std::mutex check_mutex_;
  std::function<absl::Status()> check_;  // guarded by check_mutex_
  std::jthread renewal_;
};

}  // namespace muster::coordinator
