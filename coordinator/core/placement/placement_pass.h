// One pass of the queue: which waiting jobs are placed, which workers are held for whom, and why
// the other jobs wait.
//
// One order decides who gets a worker: the queue's (priority, then age), in which running jobs
// stand, too. A job ahead of the one for which a worker is only held takes it; a job behind waits.
// So a spare is worth having on a busy fleet, and delays no job of a higher priority. Held workers
// are found anew in each pass, the same ones wherever they are still there.
//
// The caller asks for each job in that order and carries a decision out before it asks for the next
// one. A pass lives within one step and reads what it was made from. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/fleet/exclusions.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/placement/placement.h"
#include "coordinator/core/queue/job_queue.h"
#include "coordinator/core/queue/job_table.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/step_time.h"

namespace muster::coordinator {

// The job runs, and workers may be held for it: spares, or nodes onto which it may grow.
bool may_hold_workers(const Job& job);

class PlacementPass {
 public:
  PlacementPass(const CoreOptions& options, const StepTime& time, const JobTable& jobs,
                const std::vector<JobId>& live, const Fleet& fleet, const NodeBook& nodes);

  struct Decision {
    // Nodes whose checks are requested: they may be a last resort. Before all else.
    std::vector<WorkerName> checks;
    // By rank. Empty: the job waits.
    std::vector<RankPlacement> ranks;
    // An addition to the job's reason if there are ranks, else the reason.
    std::string text;
    // The workers to hold if there are no ranks.
    std::vector<WorkerName> held;
  };
  // Requires a job that is QUEUED and does not back off.
  Decision place(const Job& job, const JobQueue::Entry& entry);
  // For a job between two attempts: holds the free ones of its own nodes.
  std::vector<WorkerName> hold_own_nodes(const Job& job);

  struct More {
    std::vector<WorkerName> held;
    // The size to which the job could grow on them; at least its present one.
    int32_t nodes = 0;
  };
  // For a job that has an attempt: what it may grow onto, then its spares. While a job ahead of it
  // waits, it grows onto nothing: it would have to wait behind that one. Requires
  // may_hold_workers().
  More hold_more_nodes(const Job& job);

 private:
  bool is_check_requested(const WorkerName& name) const;
  bool is_away(const WorkerName& name) const;
  bool waits_for_all_nodes(const Job& job, const JobQueue::Entry& entry) const;
  WorkerName node_to_wait_for(const Job& job, const JobQueue::Entry& entry) const;
  Placement find_place(const Job& job, bool whole, std::string& remark);
  Placement place_among(const Job& job, bool whole, const std::vector<Host>& hosts,
                        const std::vector<Host>& excluded, std::string& remark);
  Placement place_as_last_resort(const Job& job, int32_t nodes, const std::vector<Host>& hosts,
                                 const std::vector<Host>& excluded, std::string& remark);
  bool keeps_its_nodes(const Job& job) const;
  void reserve(const PlacementRequest& request, const std::vector<WorkerName>& names);
  void take(const JobSpec& spec, const std::vector<RankPlacement>& ranks);
  std::string without_gpus_text(const JobSpec& spec) const;

  const CoreOptions& options_;
  StepTime time_;
  const Fleet& fleet_;
  const NodeBook& nodes_;
  // In the order of comes_before(); what this pass gave away is taken off.
  std::vector<Host> hosts_;
  std::vector<Host> excluded_;
  std::vector<std::string> leaving_;
  // Connected workers of another version: they end what they run.
  std::vector<std::string> outdated_;
  // A job waits for others to end: the jobs behind it are not placed.
  bool blocked_ = false;
  // The checks that the current decision requests, in their order.
  std::vector<WorkerName> checks_;
};

// "attempt 2: starting 4 ranks on node1 … node4, node4 in place of node3": where the job starts,
// and why there if not where it was, or not at full size.
std::string start_text(const Job& job, const Fleet& fleet, int64_t unix_ns);

}  // namespace muster::coordinator
