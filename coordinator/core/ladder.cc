// A job that may hang: suspicion, and a dump of its stacks. Each step up has its reason, and each step down, too.
//
//   RUNNING    nothing moved for longer than the job itself has shown to take (hang_detector.h)
//   SUSPECT    the pages of every worker that can be reached are waited for: one of them may have news that is on its way. Or a look could not
//              tell, and the next one is waited for
//   DUMPING    two samples of all stacks, and what they come to (verdict.cc)
//
// The ladder never stops a job that moves. A restarted coordinator does not know what its earlier life saw, and looks again.
#include <algorithm>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "coordinator/core/core.h"

namespace muster::coordinator {

// After a heartbeat: what it says of progress is known, and it may be the last that a suspicion has waited for.
void Core::hear_pages_of(const Worker& worker) {
  std::vector<JobId> told;
  for (const JobId id : suspects_) {
    if (launches_.at(id).no_news.erase(worker.name) > 0 ||
        launches_.at(id).unreachable.contains(worker.name) || launches_.at(id).hang->due() > now_) {
      told.push_back(id);
    }
  }
  for (const JobId id : told) {
    if (Job& job = jobs_.at(id); suspects_.contains(id)) {
      if (launches_.at(id).unreachable.contains(worker.name))
        tell_reachable(job, worker.name, "is heard of again");
      climb(job);
    }
  }
}

void Core::climb(Job& job) {
  if (job.cancel_requested || !is_running(job.state)) return;
  Launch& launch = launches_.at(job.id);
  end_doubt_if_it_goes_on(job);
  const bool still = launch.hang->due() <= now_;
  if (job.state == JobState::kRunning) {
    // Who has lost a peer leaves, and so will the others: what that peer died of is waited for.
    if (!still || launch.victim_deadline) return;
    suspect(job, launch.hang->reason(now_));
  }
  if (job.state == JobState::kDumping) {
    const OpenDump& open = dumps_.at(*launch.dump);
    // With what is missing for a verdict over a silent worker: some more silence.
    const bool soon = !may_be_confirmed(job) && may_be_confirmed(job, stacks_take());
    if (is_over(open) && (!soon || open.deadline <= now_)) conclude_dump(job);
    return;
  }
  if (!still) {
    if (launch.unreachable.empty()) go_on(job, "it makes progress again");
    return;
  }
  std::erase_if(launch.no_news, [&](const WorkerName& name) {
    const auto worker = workers_.find(name);
    return worker == workers_.end() || !worker->second.connected || !has_ranks(job, worker->second);
  });
  const bool later = launch.next_look && *launch.next_look > now_;
  if (later || launch.victim_deadline || !launch.no_news.empty() ||
      !may_be_confirmed(job, stacks_take()))
    return;
  launch.dump = begin_dump(job, Rank(-1), {2, options_.sample_deadline}, std::nullopt);
  if (!launch.dump) return;  // nobody can be asked: the lease decides
  suspects_.erase(job.id);
  job.state = JobState::kDumping;
  note(job, absl::StrCat(launch.hang->reason(now_), "; the stacks of its ranks are read"));
}

void Core::suspect(Job& job, std::string reason) {
  Launch& launch = launches_.at(job.id);
  job.state = JobState::kSuspect;
  suspects_.insert(job.id);
  launch.suspected = now_;
  launch.progress_then = launch.hang->last_step_or_phase();
  launch.step_then = launch.hang->newest_step();
  launch.no_news.clear();
  launch.looks = 0;
  for (const auto& [name, ranks] : launch.ranks) {
    const auto worker = workers_.find(name);
    if (worker == workers_.end() || !has_ranks(job, worker->second)) continue;
    const bool reachable = worker->second.connected && !launch.unreachable.contains(name);
    if (reachable && worker->second.last_pages < launch.hang->due()) launch.no_news.insert(name);
  }
  note(job, std::move(reason));
}

void Core::go_on(Job& job, std::string_view reason) {
  leave_ladder(job);
  // A doubt that no step has ended is one of what comes from now on.
  if (auto& doubt = launches_.at(job.id).doubt) doubt->until.reset();
  note(job, absl::StrCat("attempt ", job.attempt.value(), ": goes on: ", av(reason)));
}

// However it ends: what was asked for is not waited for any more.
void Core::leave_ladder(Job& job) {
  suspects_.erase(job.id);
  const auto launch = launches_.find(job.id);
  if (launch != launches_.end()) {
    if (launch->second.dump) dumps_.erase(*launch->second.dump);
    launch->second.dump.reset();
    launch->second.no_news.clear();
    launch->second.next_look.reset();
  }
  if (job.state == JobState::kSuspect || job.state == JobState::kDumping)
    job.state = JobState::kRunning;
}

// Every rank of the next attempt is up.
void Core::resume_incidents(const Job& job) {
  close_incidents(job, absl::StrCat("attempt ", job.attempt.value(), " runs"));
}

void Core::close_incidents(const Job& job, const std::string& text) {
  for (const IncidentId id : incidents_.open_of(job.id)) {
    incidents_.note(id, unix_ns_, text);
    Incident& incident = *incidents_.change(id);
    if (absl::StartsWith(incident.action, "none yet")) incident.action = "none: " + text;
    incidents_.close(id);
  }
}

// For the record alone: clocks of people and of deadlines run apart.
int64_t Core::unix_ns_of(Instant then) const { return unix_ns_ - (now_ - then).count(); }

void Core::check_ladders() {
  std::vector<JobId> running;
  for (const auto& [id, launch] : launches_) {
    if (is_running(jobs_.at(id).state)) running.push_back(id);
  }
  for (const JobId id : running) {
    Job& job = jobs_.at(id);
    check_reach(job);
    if (is_running(job.state)) climb(job);
  }
  check_dumps();
}

std::optional<Instant> Core::ladder_deadline(const Job& job, const Launch& launch) const {
  if (job.state == JobState::kRestarting) return launch.reach_check;
  if (!is_running(job.state) || job.cancel_requested || !launch.hang) return std::nullopt;
  std::optional<Instant> next = launch.reach_check;
  const auto consider = [&next](Instant t) { next = next ? std::min(*next, t) : t; };
  if (job.state == JobState::kDumping || launch.victim_deadline) return next;
  const Instant due = launch.hang->due();
  const bool waits = job.state == JobState::kRunning || due > now_;
  if (waits && due != HangDetector::kNever) consider(due);
  if (launch.next_look && *launch.next_look > now_) consider(*launch.next_look);
  return next;
}

}  // namespace muster::coordinator
