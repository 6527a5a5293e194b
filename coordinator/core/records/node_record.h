// Suspicions against a node: values without behaviour. A NodeRecord is durable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/ids.h"
#include "common/time.h"

namespace muster::coordinator {

// Why a node is excluded.
enum class Suspicion {
  kPerson,      // somebody said so
  kWorkerLost,  // with ranks
  kStuck,       // a rank that hangs stands in D state there, or is stopped; or one cannot be killed
  kNotStarted,  // ranks were not up in time
  kFaults,  // two within kFaultsWindow that cannot both be one program's own, or one that repeats
  kCheckFailed,  // or was not answered
  kGpuFault,     // a rank ended by what its GPU has
};
constexpr size_t kSuspicions = 7;

struct SuspicionRule {
  std::string_view name;
  // If a job has no other place, the node is taken all the same …
  bool is_soft = true;
  // … once it has passed a check since. Of single ranks that died a check knows nothing, and they
  // are restarted at once.
  bool wants_check = true;
};
constexpr std::array<SuspicionRule, kSuspicions> kSuspicionRules = {{
    {.name = "excluded by hand", .is_soft = false},
    {.name = "worker lost"},
    {.name = "stuck process"},
    {.name = "not started"},
    {.name = "repeated faults", .wants_check = false},
    {.name = "check failed"},
    {.name = "gpu fault"},
}};
constexpr const SuspicionRule& rule_of(Suspicion suspicion) {
  return kSuspicionRules[static_cast<size_t>(suspicion)];
}

// The current check of a worker, and the results of earlier ones. Volatile.
struct NodeCheckState {
  uint64_t id = 0;  // 0: none is awaited
  Instant deadline{};
  std::optional<Instant> passed;  // since it was suspected
  std::optional<Instant> failed;
};

// How a check went.
struct NodeCheckResult {
  bool passed = false;
  double seconds = 0;
  std::string sentence;
  std::string details;

  friend bool operator==(const NodeCheckResult&, const NodeCheckResult&) = default;
};

// The record against one node. Durable but for `until`.
struct NodeRecord {
  WorkerName worker;
  bool excluded = false;
  Suspicion suspicion = Suspicion::kPerson;
  std::string reason;  // a clause
  int64_t since_unix_ns = 0;
  int64_t until_unix_ns = 0;    // 0: until somebody admits it
  int32_t times = 0;            // exclusions, each within a day of the one before
  bool check_due = false;       // nothing is placed before one is passed
  int64_t fault_unix_ns = 0;    // of the newest fault that counts against the node …
  std::string fault;            // … and what it was; empty: none
  JobId fault_job{0};           // whose program may have done it; 0: none could
  int64_t checked_unix_ns = 0;  // 0: never
  NodeCheckResult check;

  std::optional<Instant> until;  // volatile

  friend bool operator==(const NodeRecord&, const NodeRecord&) = default;
};

}  // namespace muster::coordinator
