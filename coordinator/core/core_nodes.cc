// Node exclusions and checks, and processes that cannot be killed. fleet/exclusions.h contains the
// rules.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>

#include "coordinator/core/attempt/endings.h"
#include "coordinator/core/core.h"
#include "coordinator/core/recovery/drain.h"

namespace muster::coordinator {

void Core::suspect_node(const WorkerName& name, NodeSuspicion suspicion) {
  ActionList news = checks_.suspect(nodes_, fleet_, name, std::move(suspicion), time_.now);
  schedule_needed_ = schedule_needed_ || !news.empty();
  append(actions_, std::move(news));
}

void Core::on(const NodeChecked& event) {
  Worker* worker = fleet_.receive(event.worker, event.incarnation, time_.now);
  if (worker == nullptr) return;
  if (event.deep) {
    if (!sweep_) return;
    NodeCheckResult result = event.result;
    result.sentence = one_line(result.sentence, options_.limits.detail_bytes_max);
    sweep_->take(event.worker, event.check, result, *event.deep, time_.unix_ns);
    return advance_sweep();
  }
  if (worker->check.id == 0 || worker->check.id != event.check) return;
  NodeCheckResult result = event.result;
  result.sentence = one_line(result.sentence, options_.limits.detail_bytes_max);
  result.details = one_line(result.details, options_.limits.detail_bytes_max);
  append(actions_, conclude_check(nodes_, *worker, std::move(result), time_.now));
  schedule_needed_ = true;
}

void Core::on(const NodeExcludeRequested& event) {
  Worker* worker = fleet_.find(event.worker);
  absl::Status status = check_exclusion(event, options_.limits);
  if (status.ok() && worker == nullptr && nodes_.find(event.worker) == nullptr) {
    status = absl::NotFoundError(absl::StrCat("there is no worker \"", event.worker.value(),
                                              "\"; `muster node list` shows those there are"));
  }
  const bool is_drain = event.drain_unix_ns != 0;
  const bool is_far = is_drain && event.late && !event.time &&
                      Duration(event.drain_unix_ns - event.unix_ns) > kDrainAhead;
  if (status.ok() && is_drain) {
    nodes_.plan_drain(event.worker, event.drain_unix_ns, event.reason);
    schedule_needed_ = true;  // the former plan may have excluded the node
  }
  if (status.ok() && !is_far) {
    if (is_drain)
      nodes_.exclude_for_drain(event.worker, event.time);
    else
      nodes_.exclude(event.worker, Suspicion::kPerson, event.reason, event.time);
    actions_.push_back(NodeDecision{
        event.worker, NodeDecision::What::kExcluded, Suspicion::kPerson,
        absl::StrCat(is_drain ? "is to be drained: " : "is left out by hand: ", event.reason)});
    schedule_needed_ = true;  // waiting jobs may now wait for other nodes
    if (event.evacuate && worker != nullptr && !worker->leaving)
      preempt_ranks_of(*worker, options_.grow_grace,
                       absl::StrCat("is left out by hand (", event.reason, ")"));
  }
  actions_.push_back(Reply{event.token, std::move(status), JobId{}});
}

// Excludes nodes shortly before their planned drain, and orders the jobs on them to leave, each as
// late as its saves permit. Ranks that have not left in time are killed when the node goes.
void Core::drain_nodes() {
  std::map<JobId, Duration> leads;
  const auto lead_of = [&](const Job& job) {
    const auto [lead, added] = leads.try_emplace(job.id);
    if (added) lead->second = drain_lead(job, options_.grow_grace);
    return lead->second;
  };
  for (const WorkerName& name : std::set<WorkerName>(nodes_.drains())) {
    const NodeRecord& node = *nodes_.find(name);
    const Worker* worker = fleet_.find(name);
    const Duration left(node.drain_unix_ns - time_.unix_ns);
    if (left > kDrainAhead) continue;
    // An exclusion that may end during the maintenance does not replace that of the drain.
    const bool stays = node.excluded && rule_of(node.suspicion).until_admitted &&
                       (node.for_drain || node.until_unix_ns == 0);
    if (!stays) {
      nodes_.exclude_for_drain(name);
      actions_.push_back(NodeDecision{name, NodeDecision::What::kExcluded, Suspicion::kPerson,
                                      absl::StrCat("is to be drained: ", node.drain_reason)});
      schedule_needed_ = true;
    }
    if (left > std::max(kDrainLeadMax, options_.grow_grace)) continue;
    for (const JobId id : attempts_.jobs()) {
      Job& job = jobs_.at(id);
      if (worker == nullptr || !is_undecided(job) ||
          !has_ranks(job, attempts_.at(id).ranks, *worker) || left > lead_of(job))
        continue;
      Fault leave = fault_of_preemption(
          job, name, absl::StrCat("is drained as planned (", node.drain_reason, ")"),
          time_.unix_ns);
      leave.is_planned = true;
      fault(job, std::move(leave), std::max(left, kDrainGraceMin));
    }
    // A worker that has yet to register, as after a restart of the coordinator, may have ranks.
    if (left <= Duration::zero() && worker != nullptr) nodes_.end_drain(name);
  }
}

void Core::on(const NodeAdmitRequested& event) {
  absl::Status status;
  Worker* worker = fleet_.find(event.worker);
  if (nodes_.find(event.worker) != nullptr) {
    nodes_.admit(event.worker);
    // A result that is in flight describes the node before this event.
    if (worker != nullptr) worker->check = {};
    actions_.push_back(NodeDecision{event.worker, NodeDecision::What::kAdmitted, Suspicion::kPerson,
                                    "is admitted by hand"});
    schedule_needed_ = true;
  } else if (worker == nullptr) {
    status = absl::NotFoundError(absl::StrCat("there is no worker \"", event.worker.value(),
                                              "\"; `muster node list` shows those there are"));
  }
  actions_.push_back(Reply{event.token, std::move(status), JobId{}});
}

void Core::check_stuck() {
  // Ends attempts without waiting for these ranks, which cannot be killed.
  const auto leave = [&](Worker& worker, const std::vector<RankId>& ids) {
    worker.orphans.insert(ids.begin(), ids.end());
    worker.stuck.insert(ids.begin(), ids.end());
    const std::string text = unkillable_text(ids, options_);
    for (const RankId& id : ids) {
      Job* job = jobs_.live(id.job, id.attempt);
      if (job == nullptr) continue;
      LiveAttempt& attempt = attempts_.at(id.job);
      attempt.end_rank(*job, id.rank);
      if (attempt.incident && id == ids.front())
        incidents_.note(*attempt.incident, time_.unix_ns,
                        absl::StrCat(worker.name.value(), ": ", text));
    }
    suspect_node(worker.name, {Suspicion::kStuck, text});
    schedule_needed_ = true;
  };
  for (const JobId id : attempts_.jobs()) {
    Job& job = jobs_.at(id);
    LiveAttempt& attempt = attempts_.at(id);
    const auto unkillable =
        check_kill(job, attempt.ranks, attempt.kill, fleet_, options_, time_.now);
    for (const auto& [name, ids] : unkillable) leave(fleet_.at(name), ids);
    if (!unkillable.empty()) settle(job);
  }
  for (auto& [name, worker] : fleet_.all()) {
    const std::vector<RankId> ids = overdue_orphans(worker, fleet_, options_, time_.now);
    if (!ids.empty()) leave(worker, ids);
  }
}

}  // namespace muster::coordinator
