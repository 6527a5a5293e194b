// Nodes that are left out: who is suspected, who is checked, and what a job gets that has no other place. exclusions.h has the rules.
#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "common/absl_view.h"
#include "coordinator/core/core.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {
namespace {

constexpr size_t kNodesNamedMax = 3;  // a reason is one line

std::string named(std::vector<std::string> nodes) {
  const size_t more = nodes.size() - std::min(nodes.size(), kNodesNamedMax);
  nodes.resize(std::min(nodes.size(), kNodesNamedMax));
  return absl::StrCat(absl::StrJoin(nodes, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

void insert_in_order(std::vector<Host>& hosts, const Host& host) {
  hosts.insert(std::upper_bound(hosts.begin(), hosts.end(), host, comes_before), host);
}

}  // namespace

void Core::suspect_node(const WorkerName& name, Suspicion suspicion, std::string reason) {
  if (!nodes_.exclude(name, suspicion, std::move(reason))) return;
  const NodeRecord& node = *nodes_.find(name);
  actions_.push_back(
      NodeTold{name, NodeTold::What::kExcluded, suspicion,
               absl::StrCat("is left out: ", av(rule_of(suspicion).name), ": ", node.reason)});
  schedule_needed_ = true;
  const auto worker = workers_.find(name);
  if (worker == workers_.end()) return;
  worker->second.check.passed.reset();
  // At once: where the job has no other place, the answer is there before its ranks are reaped.
  if (!worker->second.given_up && rule_of(suspicion).wants_check) check_node(worker->second);
}

// Of a lost worker, the loss itself tells: its job may have ended already.
void Core::blame_node(const Job& job) {
  const Fault& fault = job.faults.back();
  const NodeBlame blame = blame_of_node(fault);
  if (blame == NodeBlame::kNothing || cause_of(fault) == Cause::kWorkerLost) return;
  if (blame == NodeBlame::kAtOnce)
    return suspect_node(
        fault.worker,
        cause_of(fault) == Cause::kGpuFault ? Suspicion::kGpuFault : Suspicion::kNotStarted,
        fault.message);
  if (repeats_of(job) >= kSameFaultMax) return;  // it came along to another node
  std::string reason;
  // A program may crash wherever it is; where one hangs, its node may be what it waits for.
  const JobId own = cause_of(fault) == Cause::kHang ? JobId(0) : job.id;
  const bool often = nodes_.count_fault(fault.worker, own, fault.message, reason);
  if (repeats_of(job) > 1) {
    suspect_node(fault.worker, Suspicion::kFaults,
                 absl::StrCat("the same fault twice in a row: ", fault.message));
  } else if (often) {
    suspect_node(fault.worker, Suspicion::kFaults, std::move(reason));
  }
}

// Who waits for the kernel, or is stopped, does so for a reason of its node's.
void Core::blame_stuck_node(const Suspect& suspect, const Dump& dump) {
  for (const RankEvidence& rank : dump.newest_ranks()) {
    if (rank.rank != suspect.rank.value()) continue;
    const bool waits = rank.process_state == 'D';
    if (!waits && rank.process_state != 'T') continue;
    suspect_node(suspect.worker, Suspicion::kStuck,
                 absl::StrCat("rank ", rank.rank, " hung there, ",
                              waits ? "waiting in the kernel (D state)" : "stopped (T state)"));
  }
}

// It is there, or there again.
void Core::welcome_node(Worker& worker, bool is_new_life) {
  worker.check.id = 0;  // what was asked on another stream is not answered
  if (is_new_life) worker.check.passed.reset();
  if (!nodes_.is_sound(worker.name)) check_node(worker);
}

void Core::check_node(Worker& worker) {
  if (!worker.connected || worker.leaving || worker.check.id != 0) return;
  worker.check.id = ++last_check_;
  worker.check.deadline = now_ + kCheckDeadline;
  send(worker, SendCheckNode{worker.check.id});
}

void Core::on(const NodeChecked& event) {
  Worker* worker = current_worker(event.worker, event.incarnation);
  if (worker == nullptr || worker->check.id == 0 || worker->check.id != event.check) return;
  worker->last_heard = now_;
  NodeCheckResult result = event.result;
  result.sentence = one_line(result.sentence, options_.limits.detail_bytes_max);
  result.details = one_line(result.details, options_.limits.detail_bytes_max);
  conclude_check(*worker, std::move(result));
}

void Core::conclude_check(Worker& worker, NodeCheckResult result) {
  worker.check.id = 0;
  const bool passed = result.passed;
  if (passed) {
    worker.check.passed = now_;
  } else {
    worker.check.failed = now_;
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
    const auto found = workers_.find(name);
    if (found == workers_.end()) continue;
    Worker& worker = found->second;
    if (worker.connected && worker.check.id != 0 && worker.check.deadline <= now_) {
      NodeCheckResult silence;
      silence.seconds = to_seconds(kCheckDeadline);
      silence.sentence =
          absl::StrCat("it did not answer within ", to_seconds(kCheckDeadline), " s");
      conclude_check(worker, std::move(silence));
    }
    if (nodes_.awaits_check(name)) check_node(worker);
  }
}

// An exclusion ends, a check is due or was not answered in time, or one that failed may be asked for again by a job that waits.
std::optional<Instant> Core::nodes_deadline() const {
  std::optional<Instant> next;
  const auto consider = [&next](Instant t) { next = next ? std::min(*next, t) : t; };
  if (const auto change = nodes_.next_change()) consider(*change);
  for (const WorkerName& name : nodes_.unsound()) {
    const NodeRecord& node = *nodes_.find(name);
    const auto found = workers_.find(name);
    if (found == workers_.end() || !found->second.connected || found->second.leaving) continue;
    const NodeCheckState& check = found->second.check;
    if (check.id != 0) {
      consider(check.deadline);
    } else if (nodes_.awaits_check(name)) {
      consider(now_);
    } else if (node.excluded && check.failed && *check.failed + kCheckAgain > now_ &&
               queue_.size() > 0) {
      consider(*check.failed + kCheckAgain);
    }
  }
  return next;
}

bool Core::may_be_taken(const WorkerName& name) const {
  const NodeRecord* node = nodes_.find(name);
  if (node == nullptr || !node->excluded || !rule_of(node->suspicion).is_soft) return false;
  const std::optional<Instant>& passed = workers_.at(name).check.passed;
  return !rule_of(node->suspicion).wants_check || (passed && *passed + kCheckValid > now_);
}

// The job has no place without nodes that are left out: as few of them are taken as do, and those that have yet to show that they are good
// for it are checked. `remark` says which.
Placement Core::place_as_last_resort(const Job& job, int32_t nodes, const std::vector<Host>& hosts,
                                     const std::vector<Host>& left_out, std::string& remark) {
  Placement placement;
  std::vector<Host> all = hosts;
  std::vector<std::string> others;  // that are no help yet
  std::vector<WorkerName> unchecked;
  for (const Host& host : left_out) {
    if (const Worker& worker = workers_.at(host.name); !worker.stuck.empty()) {
      others.push_back(stuck_text(worker));
      continue;
    }
    const NodeRecord& node = *nodes_.find(host.name);
    const bool is_hard = node.excluded && !rule_of(node.suspicion).is_soft;
    if (placement.fit == Fit::kNever && may_be_taken(host.name)) {
      insert_in_order(all, host);
      placement = place(wish_of(job), nodes, all);
      continue;
    }
    others.push_back(node.excluded ? exclusion_text(node)
                                   : absl::StrCat(node.worker.value(), " (being checked)"));
    if (!is_hard && wish_of(job).would_have_room(host)) unchecked.push_back(host.name);
  }
  if (placement.fit == Fit::kNow) {
    std::vector<std::string> taken;
    for (const RankPlacement& rank : placement.ranks) {
      if (rank.local_rank == 0 && !nodes_.is_sound(rank.worker))
        taken.push_back(exclusion_text(*nodes_.find(rank.worker)));
    }
    if (!taken.empty())
      remark = absl::StrCat("; there is no other place than ", named(std::move(taken)));
  } else if (placement.fit == Fit::kNever) {
    for (const WorkerName& name : unchecked) {
      Worker& worker = workers_.at(name);
      const std::optional<Instant>& failed = worker.check.failed;
      if (!failed || *failed + kCheckAgain <= now_) check_node(worker);
    }
    if (!others.empty()) remark = absl::StrCat("; left out: ", named(std::move(others)));
  }
  return placement;
}

void Core::on(const NodeExcludeRequested& event) {
  const bool is_known = workers_.contains(event.worker) || nodes_.find(event.worker) != nullptr;
  absl::Status status = check_exclusion(event, options_.limits);
  if (status.ok() && !is_known) {
    status = absl::NotFoundError(absl::StrCat("there is no worker \"", event.worker.value(),
                                              "\"; `muster node list` shows those there are"));
  }
  if (status.ok()) {
    nodes_.exclude(event.worker, Suspicion::kPerson, event.reason, event.time);
    actions_.push_back(NodeTold{event.worker, NodeTold::What::kExcluded, Suspicion::kPerson,
                                absl::StrCat("is left out by hand: ", event.reason)});
    schedule_needed_ = true;  // what waits may have to wait for others now
    if (const auto worker = workers_.find(event.worker);
        event.evacuate && worker != workers_.end() && !worker->second.leaving)
      preempt_ranks_of(worker->second, options_.grow_grace,
                       absl::StrCat("is left out by hand (", event.reason, ")"));
  }
  actions_.push_back(Reply{event.token, std::move(status), JobId{}});
}

void Core::on(const NodeAdmitRequested& event) {
  absl::Status status;
  if (nodes_.find(event.worker) != nullptr) {
    nodes_.admit(event.worker);
    // An answer that is on its way is about a node as it was before.
    if (const auto worker = workers_.find(event.worker); worker != workers_.end())
      worker->second.check = {};
    actions_.push_back(NodeTold{event.worker, NodeTold::What::kAdmitted, Suspicion::kPerson,
                                "is admitted by hand"});
    schedule_needed_ = true;
  } else if (!workers_.contains(event.worker)) {
    status = absl::NotFoundError(absl::StrCat("there is no worker \"", event.worker.value(),
                                              "\"; `muster node list` shows those there are"));
  }
  actions_.push_back(Reply{event.token, std::move(status), JobId{}});
}

}  // namespace muster::coordinator
