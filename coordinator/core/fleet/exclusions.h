// Nodes on which nothing is placed, why and until when; and those that have to pass a check before
// anything is.
//
//   sound ──suspected, or a person says so──▶ left out ──its time is over──▶ to be checked ──passed──▶ sound
//     │                                          ▲                             ▲   │
//     │                                          └──────────failed─────────────┼───┘
//     └──────────────────lost without ranks────────────────────────────────────┘
//
// Times double with each exclusion inside a day. What is known outlives the coordinator: its times
// are stored by the wall clock, the only one that does, and turned into deadlines of the core's
// clock at the first step. Pure; one thread at a time.
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

// Long enough that a node which comes and goes is not tried again and again, short enough that one
// that was only restarted is back soon.
constexpr Duration kExclusionFirst = std::chrono::minutes(10);
constexpr Duration kExclusionMax = std::chrono::hours(24);
// Within which exclusions double, and after which a node is as good as new.
constexpr Duration kExclusionMemory = std::chrono::hours(24);
constexpr Duration kFaultsWindow = std::chrono::hours(1);
// A check that is shown to people.
constexpr Duration kCheckRemembered = std::chrono::hours(1);
// A passed check says so much about a node, and no more.
constexpr Duration kCheckValid = std::chrono::minutes(10);
// The worker kills the check before: who has not answered by then hangs itself.
constexpr Duration kCheckDeadline = std::chrono::seconds(10);
// A node that failed is looked at again this late, when a job has no other place.
constexpr Duration kCheckAgain = std::chrono::seconds(30);
// More than any fleet of one coordinator has workers; names beyond are somebody's mistake.
constexpr size_t kNodeRecordsMax = 20'000;

class NodeBook {
 public:
  NodeBook() = default;
  explicit NodeBook(std::vector<NodeRecord> stored);

  // Before anything else, in each step: the moment by both clocks.
  void set_time(Instant now, int64_t unix_ns);

  const std::map<WorkerName, NodeRecord>& records() const { return records_; }
  // Those that are left out or have to pass a check.
  const std::set<WorkerName>& unsound() const { return unsound_; }
  // When set_time() will change something next.
  std::optional<Instant> next_change() const;
  const NodeRecord* find(const WorkerName& name) const;
  // Somebody may place ranks there.
  bool is_sound(const WorkerName& name) const;
  // Its time is not over.
  bool is_excluded(const WorkerName& name) const;
  // Its time is over, if it had one: what is missing is a passed check.
  bool awaits_check(const WorkerName& name) const;

  // `time`: of a person, who need not name one; others' is reckoned. A person's word stands above
  // every suspicion. True: it is news.
  bool exclude(const WorkerName& name, Suspicion suspicion, std::string reason,
               std::optional<Duration> time = std::nullopt);
  void demand_check(const WorkerName& name);
  // True: the second within kFaultsWindow, which `reason` describes. `own` is the job whose program
  // may be what is wrong: a program that crashes in one way after the other says nothing of a node,
  // unless another job has met something there, too. 0: it is not the program.
  bool count_fault(const WorkerName& name, JobId own, std::string_view fault, std::string& reason);
  // A failed one excludes.
  void note_check(const WorkerName& name, NodeCheckResult result);
  // As good as new.
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
  // The moment when each exclusion ends, or when nothing is known any more that counts: of each
  // record at most one.
  std::set<std::pair<Instant, WorkerName>> changes_;
  std::map<WorkerName, Instant> change_of_;
  bool planned_ = false;  // what was stored, by this life's clock
  std::set<WorkerName> changed_;
  std::vector<WorkerName> forgotten_;
  Instant now_{};
  int64_t unix_ns_ = 0;
};

// For reasons: "node1 (worker lost: it was started anew)".
std::string exclusion_text(const NodeRecord& record);

}  // namespace muster::coordinator
