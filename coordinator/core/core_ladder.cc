// The path of a job that may hang: suspicion, a dump of its stacks, and the verdict. Every
// transition up or down sets a reason.
//
//   RUNNING  nothing moved for longer than the job has shown to need (hang/hang_detector.h)
//   SUSPECT  waits for the pages of every reachable worker, since newer pages may be in flight; or
//            for the next dump, after an inconclusive one
//   DUMPING  takes two samples of all stacks, and derives a verdict (hang/suspicion.h)
//
// A job that moves is never stopped. A restarted coordinator does not know the earlier samples, and
// takes new ones.
#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/absl_view.h"
#include "common/exit_code.h"
#include "coordinator/core/core.h"

namespace muster::coordinator {

void Core::climb(Job& job) {
  if (job.cancel_requested || !is_running(job.state)) return;
  LiveAttempt& attempt = attempts_.at(job.id);
  HangSuspicion& suspicion = attempt.suspicion;
  const HangDetector& hang = attempt.progress.hang;
  close_if_it_went_on(incidents_, suspicion, hang, time_.unix_ns);
  const bool still = hang.due() <= time_.now;
  if (job.state == JobState::kRunning) {
    // A rank that has lost a peer leaves, and so will the others. The report of the lost peer
    // itself is awaited.
    if (!still || attempt.victim_deadline) return;
    suspect(job, hang.reason(time_.now));
  }
  const auto may_be_confirmed_before = [&](Duration before) {
    return attempt.reach.unreachable.empty() ||
           may_be_confirmed(attempt.reach, fleet_,
                            loss_after(job, attempt.reach.unreachable.size()), time_.now, before);
  };
  if (job.state == JobState::kDumping) {
    const OpenDump& open = *dumps_.find(*suspicion.dump);
    // Waits if the verdict about a silent worker only needs a somewhat longer silence.
    const bool soon = !may_be_confirmed_before(Duration::zero()) &&
                      may_be_confirmed_before(stacks_take(options_));
    if (is_over(open, fleet_, &attempt.reach.unreachable, time_.now) &&
        (!soon || open.deadline <= time_.now))
      conclude_dump(job);
    return;
  }
  if (!still) {
    if (attempt.reach.unreachable.empty()) resume(job, "it makes progress again");
    return;
  }
  std::erase_if(suspicion.pages_awaited, [&](const WorkerName& name) {
    const Worker* worker = fleet_.find(name);
    return worker == nullptr || !worker->connected || !has_ranks(job, attempt.ranks, *worker);
  });
  const bool later = suspicion.next_dump && *suspicion.next_dump > time_.now;
  if (later || attempt.victim_deadline || !suspicion.pages_awaited.empty() ||
      !may_be_confirmed_before(stacks_take(options_)))
    return;
  const auto begun = dumps_.begin(job, Rank(-1), {2, options_.sample_deadline}, std::nullopt,
                                  fleet_, attempt.reach.unreachable, options_, time_.now);
  if (!begun) return;  // no worker can be asked; the lease decides
  actions_.insert(actions_.end(), begun->messages.begin(), begun->messages.end());
  suspicion.dump = begun->id;
  suspects_.erase(job.id);
  job.state = JobState::kDumping;
  jobs_.note(job, absl::StrCat(hang.reason(time_.now), "; the stacks of its ranks are read"));
}

void Core::suspect(Job& job, std::string reason) {
  LiveAttempt& attempt = attempts_.at(job.id);
  const HangDetector& hang = attempt.progress.hang;
  job.state = JobState::kSuspect;
  suspects_.insert(job.id);
  attempt.suspicion.begin(hang, time_.now);
  for (const auto& [name, ranks] : attempt.ranks) {
    const Worker* worker = fleet_.find(name);
    if (worker == nullptr || !has_ranks(job, attempt.ranks, *worker)) continue;
    const bool reachable = worker->connected && !attempt.reach.unreachable.contains(name);
    if (reachable && worker->last_heartbeat < hang.due())
      attempt.suspicion.pages_awaited.insert(name);
  }
  jobs_.note(job, std::move(reason));
}

void Core::resume(Job& job, std::string_view reason) {
  leave_ladder(job);
  // An inconclusive hang that no completed step has ended gets its full time again from the next
  // dump on.
  if (auto& inconclusive = attempts_.at(job.id).suspicion.inconclusive) inconclusive->until.reset();
  jobs_.note(job, absl::StrCat("attempt ", job.attempt.value(), ": goes on: ", av(reason)));
}

// Drops the pending dump, however the suspicion ends.
void Core::leave_ladder(Job& job) {
  suspects_.erase(job.id);
  if (const auto attempt = attempts_.find(job.id); attempt != attempts_.end()) {
    HangSuspicion& suspicion = attempt->second.suspicion;
    if (suspicion.dump) dumps_.drop(*suspicion.dump);
    suspicion.end();
  }
  if (job.state == JobState::kSuspect || job.state == JobState::kDumping)
    job.state = JobState::kRunning;
}

void Core::conclude_dump(Job& job) {
  LiveAttempt& attempt = attempts_.at(job.id);
  const Dump dump = dumps_.take(*std::exchange(attempt.suspicion.dump, {})).dump;
  for (const auto& [name, how] : explained(attempt.view(job), attempt.reach, fleet_, time_.now))
    mark_reachable(job, name, how);
  HangDetector& hang = attempt.progress.hang;
  const std::set<WorkerName>& unreachable = attempt.reach.unreachable;
  const bool confirmed =
      unreachable.empty() ||
      may_be_confirmed(attempt.reach, fleet_, loss_after(job, unreachable.size()), time_.now);
  const Verdict verdict = verdict_of(dump, ranks_gone(job, unreachable), attempt.suspicion, hang,
                                     attempt.victim_deadline.has_value(), confirmed, time_.now);
  switch (verdict) {
    case Verdict::kProgress:
      hang.make_progress(time_.now);
      (void)hang.double_patience();
      close_if_it_went_on(incidents_, attempt.suspicion, hang, time_.unix_ns);
      resume(job, "it made progress while its stacks were read");
      break;
    case Verdict::kExcused:
      resume(job, "a rank is in a phase that may take longer");
      break;
    case Verdict::kPeerLost:
      resume(job, "a rank has lost a peer, and what became of that is waited for");
      break;
    case Verdict::kSlow:
      resume(job, "it is slow: its ranks are not where they were; it is looked at again later");
      break;
    case Verdict::kUnseen:
    case Verdict::kInconclusive:
      sample_again(job, dump, verdict == Verdict::kUnseen);
      break;
    case Verdict::kStuck:
      conclude_stuck(job, dump);
      break;
  }
  if (job.state != JobState::kRunning || attempts_.at(job.id).reach.unreachable.empty()) return;
  suspect(job, "a worker still cannot be reached");
}

// A worker that answers late once is busy, and this shows nothing about the job. An unreachable
// worker has an incident of its own, and the lease bounds the wait for it.
void Core::sample_again(Job& job, const Dump& dump, bool unseen) {
  LiveAttempt& attempt = attempts_.at(job.id);
  HangSuspicion& suspicion = attempt.suspicion;
  HangDetector& hang = attempt.progress.hang;
  std::optional<InconclusiveHang>& inconclusive = suspicion.inconclusive;
  const bool late = unseen && ++suspicion.late_dumps == 1;
  std::string reason = "its stacks were not read in time; it is looked at again";
  Duration pause = options_.samples_apart;
  if (!late && attempt.reach.unreachable.empty()) {
    const bool is_open = inconclusive && inconclusive->open;
    if (is_open && inconclusive->until && *inconclusive->until <= time_.now &&
        !renew_inconclusive(*inconclusive, hang, time_.now))
      return conclude_stuck(job, dump);
    const Duration time = inconclusive_time(job, hang, options_);
    if (is_open) {
      if (!inconclusive->until) inconclusive->until = time_.now + time;
    } else {
      std::optional<IncidentId> incident;
      if (inconclusive) incident = inconclusive->incident;
      const Blame blamed = judge(job, dump, IncidentKind::kHang, incident);
      if (!inconclusive || inconclusive->incident != *incident) incidents_.await(*incident);
      inconclusive = open_inconclusive(incidents_, *incident, blamed, hang, time, time_.now);
    }
    reason = inconclusive->reason;
    pause = std::min(std::max(pause, time_.now - inconclusive->began),
                     *inconclusive->until - time_.now);
  }
  leave_ladder(job);
  job.state = JobState::kSuspect;
  suspects_.insert(job.id);
  suspicion.next_dump = time_.now + pause;
  jobs_.note(job, std::move(reason));
}

Blame Core::judge(const Job& job, const Dump& dump, IncidentKind kind,
                  std::optional<IncidentId>& incident) {
  LiveAttempt& attempt = attempts_.at(job.id);
  OpenSymbols named;
  named.input = blame_input(job, dump, ranks_gone(job, attempt.reach.unreachable));
  Blame blamed = record_verdict(incidents_, job, dump, named.input, kind, attempt.suspicion,
                                attempt.progress.hang, incident, time_);
  named.incident = *incident;
  await_symbols(dump, std::move(named));
  return blamed;
}

void Core::conclude_stuck(Job& job, const Dump& dump) {
  LiveAttempt& attempt = attempts_.at(job.id);
  std::optional<InconclusiveHang>& inconclusive = attempt.suspicion.inconclusive;
  const bool lost = !attempt.reach.unreachable.empty();
  if (inconclusive && inconclusive->open && !lost && !attempt.incident) {
    attempt.incident = inconclusive->incident;
    inconclusive->open = false;
  }
  if (lost)
    record_silence(incidents_, attempt.reach, attempt.incident, attempt.view(job),
                   fleet_.at(*attempt.reach.unreachable.begin()), time_);
  const Blame blamed =
      judge(job, dump, lost ? IncidentKind::kWorkerLost : IncidentKind::kHang, attempt.incident);
  if (lost) {
    const std::set<WorkerName> gone = attempt.reach.unreachable;
    for (const WorkerName& name : gone) {
      if (is_live(job.state))
        give_up_ranks_of(job, name, "cannot be reached, and the others wait for it");
    }
    if (is_running(job.state)) resume(job, "no rank of a worker that cannot be reached is left");
    return;
  }
  Fault cause;
  cause.exit_code = to_int(ExitCode::kFailure);
  cause.unix_ns = time_.unix_ns;
  cause.message = absl::StrCat("hang: ", blamed.sentence);
  for (const RankState& rank : job.ranks) cause.last_step = std::max(cause.last_step, rank.step);
  if (!blamed.suspects.empty()) {
    const Suspect& first = blamed.suspects.front();
    cause.rank = first.rank;
    cause.worker = first.worker;
    if (std::string text = stuck_node_text(first, dump); !text.empty())
      suspect_node(first.worker, Suspicion::kStuck, std::move(text));
  }
  fault(job, std::move(cause), Duration::zero(), IncidentKind::kHang);
  settle(job);
}

void Core::check_ladders() {
  std::vector<JobId> running;
  for (const auto& [id, attempt] : attempts_)
    if (is_running(jobs_.at(id).state)) running.push_back(id);
  for (const JobId id : running) {
    Job& job = jobs_.at(id);
    check_reach(job);
    if (is_running(job.state)) climb(job);
  }
  check_dumps();
}

}  // namespace muster::coordinator
