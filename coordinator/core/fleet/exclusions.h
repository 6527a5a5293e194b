// Excluded nodes, with the reason and the end of each exclusion, and nodes that must pass a check
// before ranks are placed on them.
//
//   sound ──suspected, or by a user──▶ excluded ──time over──▶ awaits check ──passed──▶ sound
//     │                                   ▲                        ▲   │
//     │                                   └─────────failed─────────┼───┘
//     └─────────────────lost without ranks─────────────────────────┘
//
// Exclusion times double with each exclusion within a day. Records persist over coordinator
// restarts. Their times are stored on the wall clock, the only clock that continues over a restart,
// and are converted to deadlines of the core's clock at the first step. Pure; called on one thread
// at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/records/node_record.h"

namespace muster::coordinator {

// Bounds of the exclusion time: long enough that an unstable node is not used again and again,
// short enough that a node that was only restarted returns soon.
constexpr Duration kExclusionFirst = std::chrono::minutes(10);
constexpr Duration kExclusionMax = std::chrono::hours(24);
// An exclusion within this time after the previous one lasts twice as long. Afterwards the node's
// record is deleted.
constexpr Duration kExclusionMemory = std::chrono::hours(24);
// Two faults within this time exclude a node.
constexpr Duration kFaultsWindow = std::chrono::hours(1);
// The time for which the result of a check is displayed.
constexpr Duration kCheckRemembered = std::chrono::hours(1);
// The time for which a passed check is valid.
constexpr Duration kCheckValid = std::chrono::minutes(10);
// The coordinator's time limit for a check. The worker kills a slow check earlier, so a worker that
// does not answer within this time hangs itself.
constexpr Duration kCheckDeadline = std::chrono::seconds(10);
// The interval after which a failed check is repeated when a job has no other node.
constexpr Duration kCheckAgain = std::chrono::seconds(30);
// Above the number of workers of any fleet. More records result from a mistake in names.
constexpr size_t kNodeRecordsMax = 20'000;

class NodeBook {
 public:
  NodeBook() = default;
  explicit NodeBook(std::vector<NodeRecord> stored);

  // Sets the time on both clocks. Called first in each step.
  void set_time(Instant now, int64_t unix_ns);

  const std::map<WorkerName, NodeRecord>& records() const { return records_; }
  // Returns the nodes that are excluded or await a check.
  const std::set<WorkerName>& unsound() const { return unsound_; }
  // Returns the next time at which set_time() changes something.
  std::optional<Instant> next_change() const;
  const NodeRecord* find(const WorkerName& name) const;
  // Returns whether ranks may be placed on the node.
  bool is_sound(const WorkerName& name) const;
  // Returns whether the node is excluded now.
  bool is_excluded(const WorkerName& name) const;
  // Returns whether the node is not excluded and has to pass a check before it gets ranks.
  bool awaits_check(const WorkerName& name) const;

  // Excludes the node. `time`: the time that a user has set; nullopt: the node is excluded until it
  // is admitted (SuspicionRule::until_admitted), or for a computed time. A user's exclusion
  // overrides every suspicion, and nothing else shortens one without an end. A planned drain stays;
  // an exclusion during the last `kDrainAhead` (recovery/drain.h) lasts until then. Returns whether
  // the record changed.
  bool exclude(const WorkerName& name, Suspicion suspicion, std::string reason,
               std::optional<Duration> time = std::nullopt);
  // Sets the time by which all ranks must have left the node, and the reason. The end of an
  // exclusion ends a drain whose time has come. If the time is far ahead, the exclusion of a former
  // plan ends.
  void plan_drain(const WorkerName& name, int64_t unix_ns, std::string reason);
  // Excludes the node because of its planned drain, as exclude() for a user. Does not replace an
  // exclusion after a deep check.
  void exclude_for_drain(const WorkerName& name, std::optional<Duration> time = std::nullopt);
  // Ends the planned drain: all ranks have been ordered to leave.
  void end_drain(const WorkerName& name);
  // Returns the nodes with a planned drain.
  const std::set<WorkerName>& drains() const { return drains_; }
  // Requires that the node passes a check before it gets ranks.
  void require_check(const WorkerName& name);
  // Counts a fault against the node. Returns whether the fault is the second one within
  // kFaultsWindow, and then sets `reason` to its description. `own`: the job whose program may have
  // caused the fault; 0: no program can have caused it. Repeated crashes of one program are no
  // evidence against a node unless another job had a fault there, too.
  bool count_fault(const WorkerName& name, JobId own, std::string_view fault, std::string& reason);
  // Records the result of a check. A failed check excludes the node.
  void note_check(const WorkerName& name, NodeCheckResult result);
  // Ends the exclusion of the node and deletes its suspicion record.
  void admit(const WorkerName& name);

  // The records to store and the records to delete since the last call.
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
  int64_t exclusion_end(const NodeRecord& node) const;
  void forget_old();

  std::map<WorkerName, NodeRecord> records_;
  std::set<WorkerName> unsound_;
  std::set<WorkerName> drains_;
  // The time at which each exclusion ends or each record loses its last effect; at most one per
  // record.
  std::set<std::pair<Instant, WorkerName>> changes_;
  std::map<WorkerName, Instant> change_of_;
  // Whether the stored times are converted to this process's clock.
  bool planned_ = false;
  std::set<WorkerName> changed_;
  std::vector<WorkerName> forgotten_;
  Instant now_{};
  int64_t unix_ns_ = 0;
};

// Describes an exclusion for a job's reason: "node1 (worker lost: it was restarted)".
std::string exclusion_text(const NodeRecord& record);

}  // namespace muster::coordinator
