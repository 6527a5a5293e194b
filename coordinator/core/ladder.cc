// A job that may hang: suspicion, a dump of its stacks, and the verdict. Each step up has its reason, and each step down, too.
//
//   RUNNING    nothing moved for longer than the job itself has shown to take (hang_detector.h)
//   SUSPECT    the pages of every worker that can be reached are waited for: one of them may have news that is on its way
//   DUMPING    two samples of all stacks. Then: it goes on; or it is slow, and gets more time; or it is stuck, and the evidence is stored
//              before anything is stopped
//
// The ladder never stops a job that moves. A restarted coordinator does not know what its earlier life saw, and looks again.
#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/absl_view.h"
#include "common/exit_code.h"
#include "coordinator/core/core.h"

namespace muster::coordinator {

// Of a new launch, or of one that an earlier life of the coordinator has started.
void Core::begin_watching(const Job& job) {
  Launch& launch = launches_[job.id];
  using Speech = HangDetector::Speech;
  launch.hang.emplace(options_.hang, job.placement.size(), now_,
                      job.spec.is_program() ? Speech::kPerhapsLater : Speech::kFromTheStart);
  launch.stragglers.emplace(job.placement.size());
  launch.ranks.clear();
  for (const RankPlacement& rank : job.placement) {
    launch.ranks[rank.worker].push_back(rank.rank);
    if (job.ranks[static_cast<size_t>(rank.rank.value())].life == RankState::Life::kExited)
      forget_rank(launch, rank.rank);
  }
}

void Core::forget_rank(Launch& launch, Rank rank) {
  if (launch.hang) launch.hang->forget(static_cast<size_t>(rank.value()));
  if (launch.stragglers) launch.stragglers->forget(static_cast<size_t>(rank.value()));
}

void Core::watch(const Job& job, const RankProgress& progress) {
  Launch& launch = launches_.at(job.id);
  if (!launch.hang) return;
  const Instant start = now_ - std::min(progress.phase_age, now_.time_since_epoch());
  const Instant newest = now_ - std::min(progress.last_progress_age, now_.time_since_epoch());
  launch.hang->observe(static_cast<size_t>(progress.rank.value()),
                       {.phase = progress.phase,
                        .phase_start = start,
                        .last_progress = newest,
                        .step = progress.step,
                        .step_seconds = progress.step_seconds,
                        .steps = progress.step_times.total(),
                        .seconds = progress.step_times.seconds},
                       now_);
  launch.stragglers->observe(static_cast<size_t>(progress.rank.value()),
                             {.steps = progress.step_times.total(),
                              .seconds = progress.step_times.seconds,
                              .collective_wait = progress.collective_wait_seconds,
                              .data_wait = progress.data_wait_seconds});
  if (launch.stragglers->look_is_due()) look_for_stragglers(job);
}

std::vector<std::pair<Rank, double>> Core::straggler_scores(const Job& job,
                                                            size_t count_max) const {
  std::vector<std::pair<Rank, double>> scores;
  const auto launch = launches_.find(job.id);
  if (launch == launches_.end() || !launch->second.stragglers) return scores;
  for (const RankPlacement& rank : job.placement) {
    const double score = launch->second.stragglers->score(static_cast<size_t>(rank.rank.value()));
    if (score > 0) scores.emplace_back(rank.rank, score);
  }
  std::sort(scores.begin(), scores.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  scores.resize(std::min(scores.size(), count_max));
  return scores;
}

// A slow rank is told, and nothing is done about it: to restart a job costs more than to go on slowly.
void Core::look_for_stragglers(const Job& job) {
  Launch& launch = launches_.at(job.id);
  for (const Stragglers::Change& change : launch.stragglers->look(now_)) {
    const Rank rank(static_cast<int32_t>(change.rank));
    if (const auto known = launch.slow.find(rank); known != launch.slow.end()) {
      incidents_.note(known->second, unix_ns_, "it is as fast as the others again");
      incidents_.close(known->second);
      launch.slow.erase(known);
    }
    if (change.kind == SlowKind::kNone) continue;
    Fault what;
    what.rank = rank;
    what.worker = job.placement[change.rank].worker;
    what.unix_ns = unix_ns_;
    what.message = absl::StrFormat(
        "rank %d on %s %s: %.3f s a step, where the median rank %s %.3f s; the others wait for it",
        rank.value(), what.worker.value(),
        change.kind == SlowKind::kData ? "waits for its data" : "computes slowly", change.seconds,
        change.kind == SlowKind::kData ? "waits" : "takes", change.median);
    const IncidentId id = incidents_.open(incident_of_fault(job, what, IncidentKind::kSlowRank, 0));
    incidents_.change(id)->action = "none: training goes on";
    launch.slow.emplace(rank, id);
  }
}

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
  const bool still = launch.hang->due() <= now_;
  if (job.state == JobState::kRunning) {
    if (!still) return;
    suspect(job, launch.hang->reason(now_));
  }
  if (job.state == JobState::kDumping) {
    const OpenDump& open = dumps_.at(*launch.dump);
    if (is_over(open)) conclude_dump(job);
    return;
  }
  if (!still) {
    if (launch.unreachable.empty()) go_on(job, "it makes progress again");
    return;
  }
  if (!launch.no_news.empty() || !may_be_confirmed(launch)) return;
  launch.dump = begin_dump(job, Rank(-1), /*samples=*/2, std::nullopt);
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
  launch.step_then = -1;
  for (const RankState& rank : job.ranks) launch.step_then = std::max(launch.step_then, rank.step);
  launch.no_news.clear();
  for (const auto& [name, ranks] : launch.ranks) {
    const auto worker = workers_.find(name);
    if (worker == workers_.end() || !has_ranks(job, worker->second)) continue;
    const bool reachable = worker->second.connected && !launch.unreachable.contains(name);
    if (reachable && worker->second.last_pages < launch.hang->due()) launch.no_news.insert(name);
  }
  note(job, std::move(reason));
}

void Core::go_on(Job& job, std::string reason) {
  leave_ladder(job);
  note(job, absl::StrCat("attempt ", job.attempt.value(), ": goes on: ", reason));
}

// However it ends: what was asked for is not waited for any more.
void Core::leave_ladder(Job& job) {
  suspects_.erase(job.id);
  const auto launch = launches_.find(job.id);
  if (launch != launches_.end()) {
    if (launch->second.dump) dumps_.erase(*launch->second.dump);
    launch->second.dump.reset();
    launch->second.no_news.clear();
  }
  if (job.state == JobState::kSuspect || job.state == JobState::kDumping)
    job.state = JobState::kRunning;
}

// Pages that a dump brings are newer than those of heartbeats that are on their way.
void Core::watch_evidence(const StackReportReceived& event) {
  Launch& launch = launches_.at(event.job);
  for (const RankEvidence& rank : event.ranks) {
    const auto index = static_cast<size_t>(rank.rank);
    if (!rank.page_problem.empty() || rank.rank < 0 || index >= jobs_.at(event.job).ranks.size())
      continue;
    launch.hang->correct(index, rank.phase, rank.phase_age, rank.step, now_);
  }
}

// Who came back while stacks were read, or whose ranks have all ended, explains nothing any more.
void Core::drop_reachable(Job& job) {
  const std::set<WorkerName> names = launches_.at(job.id).unreachable;
  for (const WorkerName& name : names) {
    const auto worker = workers_.find(name);
    const bool there = worker != workers_.end() && has_ranks(job, worker->second);
    if (there && is_unreachable(worker->second)) continue;
    tell_reachable(job, name, there ? "is heard of again" : "has none of its ranks any more");
  }
}

// Heartbeats may be on their way for long: what a dump says of steps and phases is newer.
bool Core::shows_progress(const Job& job, const Dump& dump) const {
  const Launch& launch = launches_.at(job.id);
  if (launch.hang->last_step_or_phase() > launch.progress_then) return true;
  const std::vector<RankEvidence> ranks = dump.newest_ranks();
  return std::any_of(ranks.begin(), ranks.end(), [&](const RankEvidence& rank) {
    return rank.page_problem.empty() && rank.step > launch.step_then;
  });
}

void Core::conclude_dump(Job& job) {
  Launch& launch = launches_.at(job.id);
  const Dump dump = std::move(dumps_.at(*launch.dump).dump);
  drop_reachable(job);
  const Motion motion = motion_in(dump);
  const bool progressed = shows_progress(job, dump) || motion == Motion::kProgress;
  const bool allowed = launch.hang->due() > now_;  // by what the dump's pages say
  const bool unsure =
      motion == Motion::kUnsure && now_ - launch.hang->last_progress() < options_.hang.unsure;
  // One look tells nothing of what moves. A worker that heartbeats and is late with its stacks is given another try.
  const bool blind =
      std::any_of(dump.waiting().begin(), dump.waiting().end(), [&](const WorkerName& name) {
        const auto worker = workers_.find(name);
        return worker != workers_.end() && worker->second.connected &&
               !launch.unreachable.contains(name);
      });
  if (progressed) {
    launch.hang->make_progress(now_);
    (void)launch.hang->forgive();
    go_on(job, "it made progress while its stacks were read");
  } else if (allowed) {
    go_on(job, "a rank is in a phase that may take longer");
  } else if ((motion == Motion::kStacks || blind || unsure) && launch.hang->forgive()) {
    go_on(job, motion == Motion::kStacks
                   ? "it is slow: its ranks are not where they were; it is looked at again later"
                   : "its stacks were not read in time; it is looked at again");
  } else {
    conclude_stuck(job, dump);
  }
  const bool unreachable =
      job.state == JobState::kRunning && !launches_.at(job.id).unreachable.empty();
  if (unreachable) suspect(job, "a worker still cannot be reached");
}

// Why nothing can be read of some ranks.
std::map<Rank, std::string> Core::ranks_gone(const Job& job) const {
  std::map<Rank, std::string> gone;
  const Launch& launch = launches_.at(job.id);
  for (const RankPlacement& rank : job.placement) {
    if (launch.unreachable.contains(rank.worker))
      gone[rank.rank] =
          absl::StrCat("is on worker ", rank.worker.value(), ", which does not answer");
  }
  for (const RankExit& exit : job.exits) {
    gone[exit.rank] = exit.signal > 0 ? absl::StrCat("was killed by signal ", exit.signal)
                                      : absl::StrCat("exited with code ", exit.exit_code);
  }
  return gone;
}

void Core::conclude_stuck(Job& job, const Dump& dump) {
  Launch& launch = launches_.at(job.id);
  BlameInput input = blame_input(job, dump, ranks_gone(job));
  const Blame blamed = blame(input);
  const bool lost = !launch.unreachable.empty();
  Incident incident;
  incident.job = job.id;
  incident.attempt = job.attempt;
  incident.job_name = job.spec.name;
  incident.kind = lost ? IncidentKind::kWorkerLost : IncidentKind::kHang;
  incident.kernel_messages = dump.kernel_messages();
  incident.moments = {
      {unix_ns_of(launch.hang->last_progress()), "last progress of the job"},
      {unix_ns_of(launch.suspected), "suspected: " + launch.hang->reason(launch.suspected)}};
  take_blame(incident, input, blamed);
  const std::vector<WorkerName> silent = dump.silent();
  for (const WorkerName& name : silent)
    incident.moments.push_back(
        {unix_ns_, absl::StrCat("worker ", name.value(), " sent no stacks")});
  if (Incident* known = launch.incident ? incidents_.change(*launch.incident) : nullptr) {
    incident.id = known->id;
    incident.moments.insert(incident.moments.begin(), known->moments.begin(), known->moments.end());
    *known = std::move(incident);
  } else {
    launch.incident = incidents_.open(std::move(incident));
  }
  incidents_.note(*launch.incident, unix_ns_, "verdict: " + blamed.sentence);
  OpenSymbols named;
  named.incident = *launch.incident;
  named.input = std::move(input);
  if (ask_for_symbols(dump, std::move(named))) incidents_.await(*launch.incident);

  if (lost) {
    const std::set<WorkerName> gone = launch.unreachable;
    for (const WorkerName& name : gone) {
      if (is_running(job.state))
        lose_ranks_of(job, name, std::nullopt, "cannot be reached, and the others wait for it");
    }
    if (is_running(job.state)) go_on(job, "no rank of a worker that cannot be reached is left");
    return;
  }
  Fault cause;
  cause.exit_code = to_int(ExitCode::kFailure);
  cause.unix_ns = unix_ns_;
  cause.message = absl::StrCat("hang: ", blamed.sentence);
  for (const RankState& rank : job.ranks) cause.last_step = std::max(cause.last_step, rank.step);
  if (!blamed.suspects.empty()) {
    cause.rank = blamed.suspects.front().rank;
    cause.worker = blamed.suspects.front().worker;
  }
  fault(job, std::move(cause), Duration::zero(), IncidentKind::kHang);
  settle(job);
}

// Every rank of the next attempt is up.
void Core::resume_incidents(const Job& job) {
  close_incidents(job, absl::StrCat("attempt ", job.attempt.value(), " runs"));
}

void Core::close_incidents(const Job& job, const std::string& text) {
  for (const IncidentId id : incidents_.open_of(job.id)) {
    incidents_.note(id, unix_ns_, text);
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
  if (!is_running(job.state) || job.cancel_requested || !launch.hang) return std::nullopt;
  std::optional<Instant> next = launch.reach_check;
  const Instant due = launch.hang->due();
  const bool waits = (job.state == JobState::kRunning || due > now_) && due != HangDetector::kNever;
  if (waits && job.state != JobState::kDumping) next = next ? std::min(*next, due) : due;
  return next;
}

}  // namespace muster::coordinator
