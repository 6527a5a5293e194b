// A sweep: deep checks of a number of idle nodes. Each node tests itself, one that fails or is slow
// again; then the nodes that passed test the links between them (link_search.h).
//
//   nodes ──all answered, or late──▶ bad ones again ──▶ links, round by round ──▶ over
//
// A wrong result ends the node's part at once. A node is excluded for a wrong result, for a failure
// that repeats, or if it is slow beside at least three other nodes of its kind in the same sweep.
// Whatever else is slow is reported only: other folders, hosts or days explain it as well.
//
// A node that a job needs, or whose worker is lost, is skipped. The caller sends the orders, and
// carries out the verdicts. An answer takes logarithmic time, a stage that of sorting its nodes.
// Pure; called on one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/records/deep_check.h"
#include "coordinator/core/records/node_record.h"
#include "coordinator/core/sweep/check_history.h"
#include "coordinator/core/sweep/judge.h"
#include "coordinator/core/sweep/link_search.h"

namespace muster::coordinator {

// A node is slow only if its best of so many tries is. A failure counts if it repeats; a wrong
// result counts at once, because bad hardware computes rightly most of the time.
constexpr int kTriesMax = 3;
constexpr int kFailuresMax = 2;
// The nodes of a ring: their processes connect to each other.
constexpr int32_t kRingMax = 64;
// At most so large a part of the nodes of a sweep, of a kind, and of the fleet, but at least one
// node, is excluded: more of them show another cause, such as a file system or a switch.
constexpr size_t kExcludedShare = 4;
constexpr size_t excluded_max(size_t nodes) { return std::max<size_t>(1, nodes / kExcludedShare); }
// The findings that are retained.
constexpr size_t kFindingsMax = 100;
// The time limits of a node's own tests and of an all-reduce, beside their measurements, of which
// there are at most so many. Processes start slowly on a loaded machine.
constexpr Duration kNodeTestsTime = std::chrono::seconds(90);
constexpr Duration kGroupTestTime = std::chrono::seconds(60);
constexpr Duration kGroupTimePerNode = std::chrono::seconds(2);  // connections, with 8 GPUs each
constexpr int kMeasurementsOfNode = 12;
constexpr int kMeasurementsOfGroup = 3;
// The time from the worker's deadline until a worker that has not answered counts as failed.
constexpr Duration kSweepAnswerTime = std::chrono::seconds(10);

enum class NodeOutcome : uint8_t { kChecking, kPassed, kFailed, kSkipped };

struct SweptNode {
  NodeOutcome outcome = NodeOutcome::kChecking;
  std::string sentence{};
  std::optional<DeepCheckRecord> record;
};

struct SweepRequest {
  double seconds = 1;
  std::string storage_folder{};
  bool links = true;
  bool scheduled = false;
};

// An order to a worker.
struct SweepOrder {
  WorkerName worker;
  uint64_t check = 0;
  DeepCheckOrder order;
};

// A node that is to be excluded, with the reason as a clause.
struct SweepExclusion {
  WorkerName worker;
  std::string reason{};
};

class Sweep {
 public:
  // `first_id`: the first one of the ids of checks and groups, which ascend over all sweeps.
  Sweep(uint64_t id, SweepRequest request, const std::vector<WorkerName>& nodes, uint64_t first_id,
        int64_t unix_ns);

  // Records that the node was not checked.
  void skip(const WorkerName& name, std::string why);
  // Takes the answer of a worker. Ignores answers that are not awaited.
  void take(const WorkerName& name, uint64_t check, const NodeCheckResult& result,
            const DeepCheckFigures& figures, int64_t unix_ns);
  // The node's part of the sweep in progress is void, for instance because its worker is lost.
  void skip_pending(const WorkerName& name, const std::string& why);
  // If the deadline has passed, ends the checks of the nodes for which `is_late` holds: the worker
  // has sent a message after the deadline, and thus would have answered. The others are awaited
  // until they answer or are skipped.
  using IsLate = absl::FunctionRef<bool(const WorkerName& name, Instant deadline)>;
  void expire(IsLate is_late, Instant now, int64_t unix_ns);
  // Extends the deadline by a time in which no worker could report.
  void excuse(Duration time) { deadline_ += time; }
  // Returns whether answers are awaited.
  bool is_waiting() const { return !pending_.empty(); }
  // Begins the next checks. Requires that none is awaited. `address_of` returns the rendezvous
  // address of a worker. The caller calls skip_pending() for orders that it cannot send.
  using AddressOf = absl::FunctionRef<std::string(const WorkerName& name)>;
  std::vector<SweepOrder> advance(const CheckHistory& history, AddressOf address_of, Instant now,
                                  int64_t unix_ns);
  // Returns the decisions since the last call.
  std::vector<SweepExclusion> take_exclusions() { return std::exchange(exclusions_, {}); }
  // Returns the nodes whose results have become final since the last call.
  std::vector<WorkerName> take_final() { return std::exchange(final_, {}); }

  uint64_t id() const { return id_; }
  bool is_over() const { return stage_ == Stage::kOver; }
  const SweepRequest& request() const { return request_; }
  int64_t started_unix_ns() const { return started_unix_ns_; }
  int64_t ended_unix_ns() const { return ended_unix_ns_; }
  uint64_t next_id() const { return next_id_; }
  const std::map<WorkerName, SweptNode>& nodes() const { return nodes_; }
  const std::vector<std::string>& findings() const { return findings_; }
  // Adds a sentence about several nodes; ignores it beyond kFindingsMax.
  void add_finding(std::string finding);
  // Returns the time after which a worker that has not answered is late; nullopt: none is awaited.
  std::optional<Instant> deadline() const;
  // Describes the stage or the result in a sentence.
  std::string stage_text() const;

 private:
  enum class Stage : uint8_t { kBegin, kNodes, kLinks, kOver };
  struct Pending {
    uint64_t check = 0;
    size_t group = 0;    // in kLinks
    NodeIndex node = 0;  // in kLinks: the node's index in its kind
  };
  struct Tries {
    int count = 0;
    int failures = 0;
    std::string failure{};     // the newest failure
    NodeCheckResult result{};  // the newest one
    DeepCheckFigures best{};   // the best measurements
  };
  // The nodes of one kind, whose links are tested together.
  struct Kind {
    std::string name;
    std::vector<WorkerName> nodes;
  };

  std::vector<SweepOrder> order_tests(const std::vector<WorkerName>& names, Instant now);
  void gather_references(const CheckHistory& history);
  std::map<WorkerName, Judgement> bad_nodes(const CheckHistory& history) const;
  std::vector<SweepOrder> judge_nodes(const CheckHistory& history, Instant now, int64_t unix_ns);
  void conclude_nodes(const std::map<WorkerName, Judgement>& bad, int64_t unix_ns);
  void conclude(const WorkerName& name, bool passed, std::string sentence, bool excludes,
                int64_t unix_ns);
  void begin_links();
  std::vector<SweepOrder> next_links(AddressOf address_of, Instant now, int64_t unix_ns);
  void conclude_links(int64_t unix_ns);

  uint64_t id_;
  SweepRequest request_;
  int64_t started_unix_ns_;
  int64_t ended_unix_ns_ = 0;
  uint64_t next_id_;
  Stage stage_ = Stage::kBegin;
  std::map<WorkerName, SweptNode> nodes_;
  std::map<WorkerName, Tries> tries_;  // nodes that are not skipped, and have no wrong result
  std::map<WorkerName, Pending> pending_;
  Instant deadline_{};      // all pending checks have this one
  References swept_;        // the measurements of the nodes that passed
  References known_;        // the same, and earlier ones of other nodes
  std::deque<Kind> kinds_;  // their links are to be tested; the first one is in progress
  std::unique_ptr<LinkSearch> search_;
  std::vector<GroupResult> groups_;
  int rounds_ = 0;
  std::vector<std::string> findings_;
  std::vector<SweepExclusion> exclusions_;
  std::vector<WorkerName> final_;
};

}  // namespace muster::coordinator
