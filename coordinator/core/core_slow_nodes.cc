// Jobs leave confirmed slow nodes at a checkpoint. recovery/slow_nodes.h contains the rules.
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "coordinator/core/accounting/ledger_table.h"
#include "coordinator/core/attempt/endings.h"
#include "coordinator/core/core.h"
#include "coordinator/core/placement/hosts.h"
#include "coordinator/core/recovery/revisions.h"
#include "coordinator/core/recovery/slow_nodes.h"

namespace muster::coordinator {
namespace {

// The time of a start that this coordinator has not seen.
constexpr Duration kStartUnknown = std::chrono::minutes(10);
// A decision reads all ranks and nodes.
constexpr Duration kDecisionPeriod = std::chrono::seconds(10);

}  // namespace

// Returns what the job does about the nodes `slow`: a clause that begins with "none" if it stays.
std::string Core::action_on_slow_nodes(const Job& job, const std::vector<SlowNode>& slow) const {
  const LiveAttempt& attempt = attempts_.at(job.id);
  if (options_.slow_nodes == SlowNodePolicy::kReport)
    return "none: training continues (--slow-nodes report)";
  if (job.spec.restarts_max == 0)
    return "none: training continues, because no restarts are allowed";
  if (const std::string_view why = why_stays(job, slow, time_.unix_ns); !why.empty())
    return absl::StrCat("none: training continues, because ", av(why));
  if (slow.front().step_seconds <= 0) return "none yet: the time of a step is not known";
  const MoveEstimate move = estimate_move(job, slow, attempt.progress.steps.newest_step(),
                                          table_of(account_of(job, time_.now)).productive(),
                                          attempt.start_time.value_or(kStartUnknown));
  if (!move.pays())
    return "none: training continues, because another node would not save twice the time of a "
           "restart";
  if (!has_better_nodes(job, slow, attempt.ranks, jobs_, attempts_.jobs(), fleet_, nodes_, time_))
    return "none yet: no other node is free";
  return "the job leaves the node after its next checkpoint";
}

// Called after each page of rank 0.
void Core::watch_slow_nodes(Job& job) {
  if (job.slow_nodes.empty() || !is_running(job.state) || !is_undecided(job) || !job.exits.empty())
    return;
  LiveAttempt& attempt = attempts_.at(job.id);
  const bool has_saved = attempt.leave_after && has_saved_since(job, *attempt.leave_after);
  if (!has_saved && time_.now < attempt.next_slow_check) return;
  attempt.next_slow_check = time_.now + kDecisionPeriod;
  const double step_seconds = attempt.progress.step_watch.seconds();
  std::vector<SlowNode> slow;
  for (SlowNode& node : job.slow_nodes) {
    if (node.is_measured || !attempt.progress.slow_node_watch.is_slow(node.worker) ||
        !attempt.ranks.contains(node.worker))
      continue;
    node.unix_ns = time_.unix_ns;
    node.revision = job.revision;
    node.nodes = nodes_now(job);
    if (step_seconds > 0) node.step_seconds = step_seconds;
    slow.push_back(node);
  }
  if (slow.empty()) return attempt.leave_after.reset();
  const std::string action = action_on_slow_nodes(job, slow);
  for (const SlowNode& node : slow) {
    const Incident* incident = incidents_.find(node.incident);
    if (incident != nullptr && incident->action != action)
      incidents_.change(node.incident)->action = action;
  }
  if (action.starts_with("none")) return attempt.leave_after.reset();
  if (!attempt.leave_after) attempt.leave_after = newest_checkpoint_of(job);
  if (!has_saved) return;
  for (const SlowNode& node : slow) {
    find_slow_node(job, node.worker)->left_unix_ns = time_.unix_ns;
    incidents_.note(node.incident, time_.unix_ns,
                    absl::StrCat("the job leaves ", node.worker.value(), " after the checkpoint"));
  }
  Fault leave =
      fault_of_preemption(job, slow.front().worker,
                          absl::StrCat("is slow (incident ", slow.front().incident.value(),
                                       "), and the job leaves it after a checkpoint"),
                          time_.unix_ns);
  leave.is_planned = true;
  fault(job, std::move(leave), options_.grow_grace);
}

}  // namespace muster::coordinator
