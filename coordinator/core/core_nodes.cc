// Node exclusions and checks, and processes that cannot be killed. fleet/exclusions.h contains the
// rules.
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/absl_view.h"
#include "coordinator/core/core.h"

namespace muster::coordinator {

void Core::suspect_node(const WorkerName& name, Suspicion suspicion, std::string reason) {
  if (!nodes_.exclude(name, suspicion, std::move(reason))) return;
  const NodeRecord& node = *nodes_.find(name);
  actions_.push_back(
      NodeTold{name, NodeTold::What::kExcluded, suspicion,
               absl::StrCat("is left out: ", av(rule_of(suspicion).name), ": ", node.reason)});
  schedule_needed_ = true;
  Worker* worker = fleet_.find(name);
  if (worker == nullptr) return;
  worker->check.passed.reset();
  // Checks the node immediately: the result is there before the job's ranks have ended, if the job
  // has no other node.
  if (!worker->given_up && rule_of(suspicion).wants_check) check_node(*worker);
}

void Core::check_node(Worker& worker) {
  if (!worker.connected || worker.leaving || worker.check.id != 0) return;
  worker.check.id = ++last_check_;
  worker.check.deadline = time_.now + kCheckDeadline;
  send(worker, SendCheckNode{worker.check.id});
}

void Core::on(const NodeChecked& event) {
  Worker* worker = fleet_.current(event.worker, event.incarnation);
  if (worker == nullptr || worker->check.id == 0 || worker->check.id != event.check) return;
  worker->last_heard = time_.now;
  NodeCheckResult result = event.result;
  result.sentence = one_line(result.sentence, options_.limits.detail_bytes_max);
  result.details = one_line(result.details, options_.limits.detail_bytes_max);
  conclude_check(*worker, std::move(result));
}

void Core::conclude_check(Worker& worker, NodeCheckResult result) {
  worker.check.id = 0;
  const bool passed = result.passed;
  if (passed) {
    worker.check.passed = time_.now;
  } else {
    worker.check.failed = time_.now;
    worker.check.passed.reset();
  }
  actions_.push_back(
      NodeTold{worker.name, passed ? NodeTold::What::kCheckPassed : NodeTold::What::kCheckFailed,
               Suspicion::kCheckFailed,
               absl::StrFormat("%s its check in %.2f s: %s", passed ? "has passed" : "has failed",
                               result.seconds, result.sentence)});
  const bool was_excluded = nodes_.is_excluded(worker.name);
  nodes_.note_check(worker.name, std::move(result));
  if (!was_excluded && nodes_.is_excluded(worker.name)) {
    actions_.push_back(NodeTold{
        worker.name, NodeTold::What::kExcluded, Suspicion::kCheckFailed,
        absl::StrCat("is left out: its check failed: ", nodes_.find(worker.name)->reason)});
  }
  schedule_needed_ = true;
}

void Core::check_nodes() {
  const std::set<WorkerName> unsound = nodes_.unsound();
  for (const WorkerName& name : unsound) {
    Worker* worker = fleet_.find(name);
    if (worker == nullptr) continue;
    if (worker->connected && worker->check.id != 0 && worker->check.deadline <= time_.now) {
      NodeCheckResult silence;
      silence.seconds = to_seconds(kCheckDeadline);
      silence.sentence =
          absl::StrCat("it did not answer within ", to_seconds(kCheckDeadline), " s");
      conclude_check(*worker, std::move(silence));
    }
    if (nodes_.awaits_check(name)) check_node(*worker);
  }
}

void Core::on(const NodeExcludeRequested& event) {
  Worker* worker = fleet_.find(event.worker);
  absl::Status status = check_exclusion(event, options_.limits);
  if (status.ok() && worker == nullptr && nodes_.find(event.worker) == nullptr) {
    status = absl::NotFoundError(absl::StrCat("there is no worker \"", event.worker.value(),
                                              "\"; `muster node list` shows those there are"));
  }
  if (status.ok()) {
    nodes_.exclude(event.worker, Suspicion::kPerson, event.reason, event.time);
    actions_.push_back(NodeTold{event.worker, NodeTold::What::kExcluded, Suspicion::kPerson,
                                absl::StrCat("is left out by hand: ", event.reason)});
    schedule_needed_ = true;  // waiting jobs may now wait for other nodes
    if (event.evacuate && worker != nullptr && !worker->leaving)
      preempt_ranks_of(*worker, options_.grow_grace,
                       absl::StrCat("is left out by hand (", event.reason, ")"));
  }
  actions_.push_back(Reply{event.token, std::move(status), JobId{}});
}

void Core::on(const NodeAdmitRequested& event) {
  absl::Status status;
  Worker* worker = fleet_.find(event.worker);
  if (nodes_.find(event.worker) != nullptr) {
    nodes_.admit(event.worker);
    // A result that is in flight describes the node before this event.
    if (worker != nullptr) worker->check = {};
    actions_.push_back(NodeTold{event.worker, NodeTold::What::kAdmitted, Suspicion::kPerson,
                                "is admitted by hand"});
    schedule_needed_ = true;
  } else if (worker == nullptr) {
    status = absl::NotFoundError(absl::StrCat("there is no worker \"", event.worker.value(),
                                              "\"; `muster node list` shows those there are"));
  }
  actions_.push_back(Reply{event.token, std::move(status), JobId{}});
}

// Ends the attempts without the ranks, because these cannot be killed.
void Core::leave_stuck(Worker& worker, const std::vector<RankId>& ids) {
  worker.orphans.insert(ids.begin(), ids.end());
  worker.stuck.insert(ids.begin(), ids.end());
  const std::string text = unkillable_text(ids, options_);
  for (const RankId& id : ids) {
    Job* job = jobs_.live(id.job, id.attempt);
    if (job == nullptr) continue;
    rank_gone(*job, id.rank);
    if (const auto& incident = attempts_.at(id.job).incident; incident && id == ids.front())
      incidents_.note(*incident, time_.unix_ns, absl::StrCat(worker.name.value(), ": ", text));
  }
  suspect_node(worker.name, Suspicion::kStuck, text);
  schedule_needed_ = true;
}

void Core::check_stuck() {
  std::vector<JobId> overdue;
  for (auto& [id, attempt] : attempts_) {
    if (!attempt.kill.check_is_due(time_.now)) continue;
    const bool pending = is_order_pending(jobs_.at(id), attempt.ranks, fleet_, time_.now);
    if (attempt.kill.is_overdue(pending, options_, time_.now)) overdue.push_back(id);
  }
  for (const JobId id : overdue) {
    Job& job = jobs_.at(id);
    bool left = false;
    for (auto& [name, worker] : fleet_.all()) {
      const LiveAttempt& attempt = attempts_.at(id);
      const std::vector<RankId> ids =
          unkillable_ranks(job, attempt.ranks, attempt.kill, worker, options_);
      if (ids.empty()) continue;
      leave_stuck(worker, ids);
      left = true;
    }
    if (left) settle(job);
  }
  for (auto& [name, worker] : fleet_.all()) {
    const std::vector<RankId> ids = overdue_orphans(worker, fleet_, options_, time_.now);
    if (!ids.empty()) leave_stuck(worker, ids);
  }
}

}  // namespace muster::coordinator
