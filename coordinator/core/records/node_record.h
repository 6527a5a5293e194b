// Suspicions against a node: values without behaviour. A NodeRecord is durable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/job/ids.h"
#include "common/time/time.h"

namespace muster::coordinator {

// The reason why a node is excluded.
enum class Suspicion {
  kPerson,      // excluded by a user
  kWorkerLost,  // the worker was lost while it had ranks
  // A hanging rank on the node is stopped or in D state, or a process there cannot be killed.
  kStuck,
  kNotStarted,  // ranks were not up in time, or their worker could not start a process
  // Two faults within kFaultsWindow that one program cannot have caused alone, or a fault that
  // repeats.
  kFaults,
  kCheckFailed,      // a check failed or was not answered
  kGpuFault,         // a GPU error ended a rank
  kDeepCheckFailed,  // a deep check found a fault or a slow part
};
constexpr size_t kSuspicions = 8;

struct SuspicionRule {
  std::string_view name;
  // A job that has no other node may use the excluded node.
  bool is_soft = true;
  // A job may use the excluded node only after the node has passed a check. False for faults of
  // single ranks, because a check does not detect their cause and these ranks are restarted
  // immediately.
  bool requires_check = true;
  // The exclusion lasts until the node is admitted, or until a time that a user has set.
  bool until_admitted = false;
};
constexpr std::array<SuspicionRule, kSuspicions> kSuspicionRules = {{
    {.name = "excluded by hand", .is_soft = false, .until_admitted = true},
    {.name = "worker lost"},
    {.name = "stuck process"},
    {.name = "not started"},
    {.name = "repeated faults", .requires_check = false},
    {.name = "check failed"},
    {.name = "gpu fault"},
    // The short check does not find what the deep check has found.
    {.name = "deep check failed",
     .is_soft = false,
     .requires_check = false,
     .until_admitted = true},
}};
constexpr const SuspicionRule& rule_of(Suspicion suspicion) {
  return kSuspicionRules[static_cast<size_t>(suspicion)];
}

// The current check of a worker, and the results of earlier ones. Volatile.
struct NodeCheckState {
  uint64_t id = 0;  // 0: no check is pending
  Instant deadline{};
  std::optional<Instant> passed;  // time of a passed check since the suspicion
  std::optional<Instant> failed;
};

// The result of a check.
struct NodeCheckResult {
  bool passed = false;
  double seconds = 0;
  std::string sentence;
  std::string details;

  friend bool operator==(const NodeCheckResult&, const NodeCheckResult&) = default;
};

// The suspicion record of one node. Durable except for `until`.
struct NodeRecord {
  WorkerName worker;
  bool excluded = false;
  Suspicion suspicion = Suspicion::kPerson;
  std::string reason;  // a clause
  int64_t since_unix_ns = 0;
  int64_t until_unix_ns = 0;  // 0: until the node is admitted
  // A planned drain: all ranks must have left the node by then. 0: none.
  int64_t drain_unix_ns = 0;
  std::string drain_reason;  // a clause
  bool for_drain = false;    // the exclusion belongs to that drain
  // The number of exclusions in a row, each within a day after the previous one.
  int32_t times = 0;
  bool check_due = false;     // placement requires a passed check first
  int64_t fault_unix_ns = 0;  // time of the newest fault that counts
  std::string fault;          // description of that fault; empty: none
  // The job whose program may have caused that fault; 0: no program could have.
  JobId fault_job{0};
  int64_t checked_unix_ns = 0;  // 0: never
  NodeCheckResult check;

  std::optional<Instant> until;  // volatile

  friend bool operator==(const NodeRecord&, const NodeRecord&) = default;
};

}  // namespace muster::coordinator
