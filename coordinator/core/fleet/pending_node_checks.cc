#include "coordinator/core/fleet/pending_node_checks.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/text/absl_view.h"
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
  // The fault also occurred on another node, so this node is not the cause.
  if (repeats_of(job) >= kSameFaultMax) return std::nullopt;
  std::string reason;
  // A program may crash by itself on any node, while a hang may be caused by the node.
  const JobId own = cause == Cause::kHang ? JobId(0) : job.id;
  const bool often = nodes.count_fault(fault.worker, own, fault.message, reason);
  if (repeats_of(job) > 1) {
    return NodeSuspicion{Suspicion::kFaults,
                         absl::StrCat("the same fault twice in a row: ", fault.message)};
  }
  if (!often) return std::nullopt;
  return NodeSuspicion{Suspicion::kFaults, std::move(reason)};
}

ActionList PendingNodeChecks::request(Worker& worker, Instant now) {
  if (!worker.connected || worker.leaving || worker.check.id != 0) return {};
  worker.check.id = ++last_;
  worker.check.deadline = now + kCheckDeadline;
  return {send_action(worker, SendCheckNode{worker.check.id})};
}

ActionList PendingNodeChecks::suspect(NodeBook& nodes, Fleet& fleet, const WorkerName& name,
                                      NodeSuspicion suspicion, Instant now) {
  if (!nodes.exclude(name, suspicion.suspicion, std::move(suspicion.reason))) return {};
  const SuspicionRule& rule = rule_of(suspicion.suspicion);
  ActionList actions = {
      NodeDecision{name, NodeDecision::What::kExcluded, suspicion.suspicion,
                   absl::StrCat("is left out: ", av(rule.name), ": ", nodes.find(name)->reason)}};
  Worker* worker = fleet.find(name);
  if (worker == nullptr) return actions;
  worker->check.passed.reset();
  // Checks the node immediately, so that the result arrives before the job's ranks have ended: the
  // job may have no other node.
  if (!worker->given_up && rule.requires_check) append(actions, request(*worker, now));
  return actions;
}

ActionList PendingNodeChecks::run_due(NodeBook& nodes, Fleet& fleet, Instant now) {
  ActionList actions;
  const std::set<WorkerName> unsound = nodes.unsound();
  for (const WorkerName& name : unsound) {
    Worker* worker = fleet.find(name);
    if (worker == nullptr) continue;
    if (worker->connected && worker->check.id != 0 && worker->check.deadline <= now) {
      NodeCheckResult silence;
      silence.seconds = to_seconds(kCheckDeadline);
      silence.sentence =
          absl::StrCat("it did not answer within ", to_seconds(kCheckDeadline), " s");
      append(actions, conclude_check(nodes, *worker, std::move(silence), now));
    }
    if (nodes.awaits_check(name)) append(actions, request(*worker, now));
  }
  return actions;
}

ActionList conclude_check(NodeBook& nodes, Worker& worker, NodeCheckResult result, Instant now) {
  worker.check.id = 0;
  const bool passed = result.passed;
  if (passed) {
    worker.check.passed = now;
  } else {
    worker.check.failed = now;
    worker.check.passed.reset();
  }
  ActionList actions = {NodeDecision{
      worker.name, passed ? NodeDecision::What::kCheckPassed : NodeDecision::What::kCheckFailed,
      Suspicion::kCheckFailed,
      absl::StrFormat("%s its check in %.2f s: %s", passed ? "has passed" : "has failed",
                      result.seconds, result.sentence)}};
  const bool was_excluded = nodes.is_excluded(worker.name);
  nodes.note_check(worker.name, std::move(result));
  if (!was_excluded && nodes.is_excluded(worker.name)) {
    actions.push_back(NodeDecision{
        worker.name, NodeDecision::What::kExcluded, Suspicion::kCheckFailed,
        absl::StrCat("is left out: its check failed: ", nodes.find(worker.name)->reason)});
  }
  return actions;
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
