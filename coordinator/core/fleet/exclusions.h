// Excluded nodes, with the reason and the end of each exclusion, and nodes that must pass a check
// before ranks are placed on them.
//
//   sound ──suspected, or by a user──▶ excluded ──time over──▶ awaits check ──passed──▶ sound
//     │                                   ▲                        ▲   │
//     │                                   └─────────failed─────────┼───┘
//     └─────────────────lost without ranks─────────────────────────┘
//
// Exclusion times double with each exclusion within a day. Records survive the coordinator: their
// times are stored on the wall clock, the only clock that also does, and are converted to deadlines
// of the core's clock at the first step. Pure; called on one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/records/node_record.h"

namespace muster::coordinator {

// Long enough that an unstable node is not used again and again, short enough that a node that was
// only restarted is back soon.
constexpr Duration kExclusionFirst = std::chrono::minutes(10);
constexpr Duration kExclusionMax = std::chrono::hours(24);
// Exclusions within this time double. After it, the record of a node is forgotten.
constexpr Duration kExclusionMemory = std::chrono::hours(24);
constexpr Duration kFaultsWindow = std::chrono::hours(1);
// How long the result of a check is displayed.
constexpr Duration kCheckRemembered = std::chrono::hours(1);
// How long a passed check is valid.
constexpr Duration kCheckValid = std::chrono::minutes(10);
// The coordinator's time limit for a check. The worker kills the check earlier, so a worker that
// has not answered by then hangs itself.
constexpr Duration kCheckDeadline = std::chrono::seconds(10);
// The interval after which a failed check is repeated when a job has no other node.
constexpr Duration kCheckAgain = std::chrono::seconds(30);
// More than the workers of any fleet; names beyond this are a mistake.
constexpr size_t kNodeRecordsMax = 20'000;

class NodeBook {
 public:
  NodeBook() = default;
  explicit NodeBook(std::vector<NodeRecord> stored);

  // Sets the time on both clocks. Called first in each step.
  void set_time(Instant now, int64_t unix_ns);

  const std::map<WorkerName, NodeRecord>& records() const { return records_; }
  // The nodes that are excluded or await a check.
  const std::set<WorkerName>& unsound() const { return unsound_; }
  // Returns the next time at which set_time() changes something.
  std::optional<Instant> next_change() const;
  const NodeRecord* find(const WorkerName& name) const;
  // Ranks may be placed on the node.
  bool is_sound(const WorkerName& name) const;
  // The node's exclusion is not over.
  bool is_excluded(const WorkerName& name) const;
  // The node's exclusion, if any, is over, and the node has not passed a check since.
  bool awaits_check(const WorkerName& name) const;

  // Excludes the node. `time`: set by a user, who may omit it; for other suspicions it is computed.
  // A user's exclusion overrides every suspicion. Returns whether the record changed.
  bool exclude(const WorkerName& name, Suspicion suspicion, std::string reason,
               std::optional<Duration> time = std::nullopt);
  void demand_check(const WorkerName& name);
  // Counts a fault against the node. Returns whether it is the second within kFaultsWindow;
  // `reason` then describes it. `own`: the job whose program may have caused the fault; 0: no
  // program can have. Repeated crashes of one program are no evidence against a node unless another
  // job had a fault there, too.
  bool count_fault(const WorkerName& name, JobId own, std::string_view fault, std::string& reason);
  // Records the result of a check. A failed check excludes the node.
  void note_check(const WorkerName& name, NodeCheckResult result);
  // Forgets everything against the node.
  void admit(const WorkerName& name);

  // The changes since the last call, and the forgotten records.
  struct Changes {
    std::vector<NodeRecord> stored;
    std::vector<WorkerName> forgotten;
  };
  Changes take_changes();

 private:
  NodeRecord& record(const WorkerName& name);
  void plan(const NodeRecord& node);
  void unplan(const WorkerName& name);
  void forget(const WorkerName& name);
  int64_t left_out_until(const NodeRecord& node) const;
  int64_t holds_until(const NodeRecord& node) const;
  void forget_old();

  std::map<WorkerName, NodeRecord> records_;
  std::set<WorkerName> unsound_;
  // The time at which each exclusion ends or each record loses its last effect; at most one per
  // record.
  std::set<std::pair<Instant, WorkerName>> changes_;
  std::map<WorkerName, Instant> change_of_;
  // Whether stored times were converted to this process's clock.
  bool planned_ = false;
  std::set<WorkerName> changed_;
  std::vector<WorkerName> forgotten_;
  Instant now_{};
  int64_t unix_ns_ = 0;
};

// Text for reasons: "node1 (worker lost: it was started anew)".
std::string exclusion_text(const NodeRecord& record);

}  // namespace muster::coordinator
