#include "coordinator/core/fleet/node_checks.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {

std::optional<NodeSuspicion> suspicion_after(NodeBook& nodes, const Job& job) {
  const Fault& fault = job.faults.back();
  const Cause cause = cause_of(fault);
  const NodeBlame blame = blame_of_node(fault);
  if (blame == NodeBlame::kNothing || cause == Cause::kWorkerLost) return std::nullopt;
  if (blame == NodeBlame::kAtOnce) {
    return NodeSuspicion{cause == Cause::kGpuFault ? Suspicion::kGpuFault : Suspicion::kNotStarted,
                         fault.message};
  }
  // The fault followed the job to another node, so it is not the node's.
  if (repeats_of(job) >= kSameFaultMax) return std::nullopt;
  std::string reason;
  // A crash may be the program's own fault on any node; a hang may be caused by the node.
  const JobId own = cause == Cause::kHang ? JobId(0) : job.id;
  const bool often = nodes.count_fault(fault.worker, own, fault.message, reason);
  if (repeats_of(job) > 1) {
    return NodeSuspicion{Suspicion::kFaults,
                         absl::StrCat("the same fault twice in a row: ", fault.message)};
  }
  if (!often) return std::nullopt;
  return NodeSuspicion{Suspicion::kFaults, std::move(reason)};
}

std::optional<Instant> next_check_of(const NodeBook& nodes, const Fleet& fleet, bool jobs_wait,
                                     Instant now) {
  std::optional<Instant> next;
  const auto consider = [&next](Instant t) { next = next ? std::min(*next, t) : t; };
  if (const auto change = nodes.next_change()) consider(*change);
  for (const WorkerName& name : nodes.unsound()) {
    const NodeRecord& node = *nodes.find(name);
    const Worker* worker = fleet.find(name);
    if (worker == nullptr || !worker->connected || worker->leaving) continue;
    const NodeCheckState& check = worker->check;
    if (check.id != 0) {
      consider(check.deadline);
    } else if (nodes.awaits_check(name)) {
      consider(now);
    } else if (node.excluded && check.failed && *check.failed + kCheckAgain > now && jobs_wait) {
      consider(*check.failed + kCheckAgain);
    }
  }
  return next;
}

}  // namespace muster::coordinator
