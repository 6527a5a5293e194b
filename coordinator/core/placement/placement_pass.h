// One placement pass over the queue: places waiting jobs, reserves workers for jobs, and explains
// why the remaining jobs wait.
//
// One order decides which job gets a worker: the queue's order (priority, then age), which includes
// running jobs. A worker that is reserved for one job can be used by any job that is earlier in the
// order, and by no later job. Therefore spares are useful on a busy fleet and delay no job of a
// higher priority. Each pass computes the reservations again and retains the same workers if they
// are still available.
//
// A job that waits for other jobs to end claims all workers on which it could run. So does one that
// needs workers that were here recently and may return: a worker that is restarted, or all of them
// after a restart or an upgrade of the coordinator, must not cost a large job its place. A later
// job gets free workers without a claim. Backfill: it gets claimed ones only if it has a time
// limit, and ends by it before the time at which the claiming job can start at the latest. A later
// job therefore never delays the claiming job beyond that time. The time is known if enough running
// jobs have time limits. Otherwise jobs with a limit of at most kBackfillWindow start, so that one
// job without a limit does not leave the fleet idle: they delay the claiming job by at most the
// window after jobs without limits have ended. A backfilled job that is restarted is placed by
// backfill again, because its restarts must delay the claiming job no further.
//
// The caller calls the pass for each job in that order, and executes each decision before the next
// call. A pass exists only within one step of the core, and refers to its arguments. Pure; called
// on one thread at a time.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/job/ids.h"
#include "coordinator/core/action.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/fleet/exclusions.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/placement/placement.h"
#include "coordinator/core/queue/job_queue.h"
#include "coordinator/core/queue/job_table.h"
#include "coordinator/core/records/core_time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Returns whether the job runs and workers may be reserved for it: spares, or nodes onto which it
// may grow.
bool may_hold_workers(const Job& job);

// Returns whether a placement pass has anything to do. `live`: the jobs that have ranks.
bool any_job_needs_workers(const JobQueue& queue, const JobTable& jobs,
                           const std::vector<JobId>& live);

// The latest ends of jobs that have ranks and a time limit.
using JobEnds = std::map<JobId, Instant>;
// The time from the end of a limit until the nodes of the job are free for others: the last ranks
// are killed, and have to release up to hundreds of gigabytes of memory.
constexpr Duration kEndMargin = std::chrono::seconds(35);
// The longest time limit, with kEndMargin, of a backfilled job if it is not known when the claiming
// job can start.
constexpr Duration kBackfillWindow = std::chrono::hours(4);
// The reason of a job whose workers jobs ahead of it in the queue claim.
constexpr std::string_view kWaitsBehind = "waits for the jobs ahead of it in the queue";

class PlacementPass {
 public:
  PlacementPass(const CoreOptions& options, const CoreTime& time, const JobTable& jobs,
                const std::vector<JobId>& live, const Fleet& fleet, const NodeBook& nodes);

  struct Decision {
    // Nodes to check, because the job may use them as a last resort. The caller requests these
    // checks before it starts ranks.
    std::vector<WorkerName> checks;
    // The placement, by rank. Empty: the job waits.
    std::vector<RankPlacement> ranks;
    // An addition to the job's reason if `ranks` is not empty; otherwise the reason why the job
    // waits.
    std::string text;
    // The workers to reserve if there are no ranks.
    std::vector<WorkerName> held;
    bool is_backfilled = false;
    // The job waits for nodes that it will get: for other jobs to end, or for workers to return.
    bool has_claim = false;
  };
  // Places a waiting job. Requires that the job is QUEUED and is not backing off. Takes logarithmic
  // time for a new job with the shape of an earlier one that waits. Requires that the job remains
  // where it is until the pass ends. `limit`: the time for which the job may still have ranks.
  Decision place(const Job& job, const JobQueue::Entry& entry, std::optional<Duration> limit);
  // Places a job that lacks only quota that is reserved for claiming jobs: it has to end before the
  // first of them can start. `limit`: as above.
  Decision place_before_claims(const Job& job, Duration limit);
  // Claims hosts for a job that waits until backfilled jobs return its quota, at `earliest`.
  void claim_from(const Job& job, Instant earliest);
  // Returns whether a job waits for others to end, so that later jobs start by backfill only.
  bool is_blocked() const { return blocked_; }
  // Sets the ends of running jobs. Called before a job with a time limit is placed.
  void set_ends(JobEnds ends) { ends_ = std::move(ends); }
  // Adds the end of a job that this pass has started. It does not change the starts of claims that
  // were computed before: on their hosts the job ends before them.
  void add_end(JobId job, Instant end) { ends_.emplace(job, end); }
  // Returns the free workers among the nodes of a job between two attempts, to be reserved for it.
  std::vector<WorkerName> hold_own_nodes(const Job& job);

  // The reservations for a job that has an attempt.
  struct More {
    std::vector<WorkerName> held;
    // The number of nodes to which the job could grow with these workers; at least its present
    // number.
    int32_t nodes = 0;
  };
  // Returns the workers to reserve for a job that has an attempt: first nodes onto which it may
  // grow, then spares. While an earlier job in the order waits, this job does not grow, because
  // after its end it would have to wait behind that job. Requires may_hold_workers().
  More hold_more_nodes(const Job& job);

 private:
  // The request of a job that has not had an attempt.
  struct Shape {
    int32_t ranks_per_node = 0;
    int32_t gpus_per_rank = 0;
    int32_t nodes = 0;
    std::vector<std::string> selector{};
    std::vector<std::string> tolerations{};

    friend auto operator<=>(const Shape&, const Shape&) = default;
  };
  // The hosts that suit a shape, whatever its number of nodes.
  struct Room {
    std::ptrdiff_t when_empty = 0;  // hosts with enough resources, if they were empty
    std::ptrdiff_t away = 0;        // the same for workers that may return
    std::ptrdiff_t unclaimed = 0;   // hosts with enough free resources that no job claims
    bool gpus_missing = false;      // a host has enough free slots but too few free GPUs
  };

  // A job that waits for other jobs to end. It claims the hosts on which it could run if they were
  // empty, unless an earlier job claims them.
  struct Claim {
    JobId job;
    PlacementRequest request;
    int32_t nodes = 0;
    std::ptrdiff_t held = 0;  // workers that are reserved for it
    Instant earliest{};       // the job does not start before this time
    // The latest time at which the job can start; computed on demand.
    std::optional<std::optional<Instant>> start{};
  };

  static Shape shape_of(const JobSpec& spec, int32_t nodes) {
    return {spec.ranks_per_node, spec.gpus_per_rank, nodes, spec.node_selector, spec.tolerations};
  }
  Decision decide(const Job& job, const JobQueue::Entry& entry);
  void find_away();
  // backfill.cc
  void claim(const Job& job, std::ptrdiff_t held);
  std::vector<Host> unclaimed_hosts() const;
  Decision backfill(const Job& job, std::optional<Duration> limit);
  std::optional<Instant> latest_start(const Claim& claim) const;
  bool is_over_before(Instant end, Claim& claim);
  const Room& room_of(const Job& job);
  bool can_never_fit(const Job& job);
  bool may_fit_later(const Job& job);
  bool may_fit_soon(const Job& job);
  void await_checks();
  bool is_check_requested(const WorkerName& name) const;
  bool is_away(const WorkerName& name) const;
  bool waits_for_all_nodes(const Job& job, const JobQueue::Entry& entry) const;
  WorkerName node_to_wait_for(const Job& job, const JobQueue::Entry& entry) const;
  Placement find_place(const Job& job, bool whole, std::string& remark);
  Placement place_among(const Job& job, bool whole, const std::vector<Host>& hosts,
                        const std::vector<Host>& excluded, std::string& remark);
  Placement place_as_last_resort(const Job& job, int32_t nodes, const std::vector<Host>& hosts,
                                 const std::vector<Host>& excluded, std::string& remark);
  bool can_reuse_its_nodes(const Job& job) const;
  void reserve(const PlacementRequest& request, const std::vector<WorkerName>& names);
  void take(const JobSpec& spec, const std::vector<RankPlacement>& ranks);
  std::string without_gpus_text() const;

  const CoreOptions& options_;
  CoreTime time_;
  const JobTable& jobs_;
  const Fleet& fleet_;
  const NodeBook& nodes_;
  // The hosts that may get ranks, and the excluded ones, in the order of comes_before(). The
  // resources that this pass has assigned are subtracted.
  std::vector<Host> hosts_;
  std::vector<Host> excluded_;
  // Workers that may return soon: their resources count as if they were empty.
  std::vector<Host> away_;
  // Workers that may return when they are upgraded, counted in the same way.
  std::vector<Host> upgraded_later_;
  std::vector<std::string> leaving_;
  // Connected workers of another version. Their ranks run to the end, and no new ranks are placed
  // on them.
  std::vector<std::string> outdated_;
  std::vector<Claim> claims_;
  bool blocked_ = false;     // a job waits for other jobs to end
  std::set<Shape> claimed_;  // the shapes of jobs that have claimed hosts; their keys have 0 nodes
  JobEnds ends_;
  // For shapes without a place by backfill: the least time limit for which there is none.
  std::map<Shape, Duration> no_backfill_;
  // The checks that the current decision requests, in order.
  std::vector<WorkerName> checks_;
  // Results that hold until this pass assigns a resource: without them, each of ten thousand
  // waiting jobs would examine each of ten thousand hosts.
  std::map<Shape, Decision> decisions_;
  std::map<Shape, Room> rooms_;  // its keys have 0 nodes
};

// Returns the spec that the workers of the current attempt receive.
std::shared_ptr<const JobSpec> spec_of_attempt(const Job& job);
// Returns the order to start the job's ranks on `worker`. `spec`: spec_of_attempt(job). `ranks`:
// all ranks of the job.
SendToWorker order_to_start(const Job& job, std::shared_ptr<const JobSpec> spec,
                            const RanksByWorker& ranks, const Worker& worker);

// Describes the start: "attempt 2: starting 4 ranks on node1 … node4, node4 in place of node3".
// Explains why the job starts on other nodes than before, or not at full size.
std::string start_text(const Job& job, const Fleet& fleet, int64_t unix_ns);

}  // namespace muster::coordinator
