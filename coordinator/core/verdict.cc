// What two looks at the stacks of a suspicious job come to:
//
//   it made progress                    RUNNING, and more patience
//   a rank is in a phase that may last  RUNNING
//   a rank is somewhere else            RUNNING: it is slow, and looked at again when twice the time is over
//   nobody can tell                     SUSPECT: an incident says at once what is known, and the job runs while it is looked at again, for as long
//                                       again as it was given before, and for HangBudgets::unsure at least
//   it cannot go on, or nobody could    the evidence is stored before anything is stopped
//   tell for so long, or its owner has
//   said how long it may be silent
#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/absl_view.h"
#include "common/exit_code.h"
#include "coordinator/core/core.h"

namespace muster::coordinator {

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
  const Dump dump = std::move(dumps_.extract(*std::exchange(launch.dump, {})).mapped().dump);
  drop_reachable(job);
  const Motion motion = motion_in(dump, ranks_gone(job));
  if (shows_progress(job, dump) || motion == Motion::kProgress) {
    launch.hang->make_progress(now_);
    (void)launch.hang->forgive();
    end_doubt_if_it_goes_on(job);
    go_on(job, "it made progress while its stacks were read");
  } else if (launch.hang->due() > now_) {  // by what the dump's pages say
    go_on(job, "a rank is in a phase that may take longer");
  } else if (launch.victim_deadline) {
    go_on(job, "a rank has lost a peer, and what became of that is waited for");
  } else if (motion == Motion::kStacks && launch.hang->forgive()) {
    go_on(job, "it is slow: its ranks are not where they were; it is looked at again later");
  } else if ((motion == Motion::kUnsure && !launch.hang->is_silent()) ||
             motion == Motion::kUnseen || !may_be_confirmed(job)) {
    look_again(job, dump, motion);
  } else {
    conclude_stuck(job, dump);
  }
  if (job.state != JobState::kRunning || launches_.at(job.id).unreachable.empty()) return;
  suspect(job, "a worker still cannot be reached");
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

// A worker that is late with its answer once is a busy machine, and says nothing of the job. One that cannot be reached has an incident of its
// own, and the lease ends waiting for it.
void Core::look_again(Job& job, const Dump& dump, Motion motion) {
  Launch& launch = launches_.at(job.id);
  const bool late = motion == Motion::kUnseen && ++launch.looks == 1;
  std::string reason = "its stacks were not read in time; it is looked at again";
  Duration pause = options_.samples_apart;
  if (!late && launch.unreachable.empty()) {
    if (launch.doubt && launch.doubt->open && launch.doubt->until && *launch.doubt->until <= now_) {
      // What has moved meanwhile, if only for a while, gets the time anew, as long as anything that moves gets.
      const bool moved = launch.hang->last_progress() > launch.doubt->began;
      if (!moved || !launch.hang->forgive()) return conclude_stuck(job, dump);
      launch.doubt->until.reset();
      launch.doubt->began = now_;
    }
    open_doubt(job, dump);
    reason = launch.doubt->reason;
    pause = std::min(std::max(pause, now_ - launch.doubt->began), *launch.doubt->until - now_);
  }
  leave_ladder(job);
  job.state = JobState::kSuspect;
  suspects_.insert(job.id);
  launch.next_look = now_ + pause;
  note(job, std::move(reason));
}

// Told at once, because who looks at a job that stands still wants to know where; and once for each attempt.
void Core::open_doubt(const Job& job, const Dump& dump) {
  Launch& launch = launches_.at(job.id);
  const Duration least =
      job.spec.is_program() ? options_.hang.unsure_program : options_.hang.unsure;
  const Duration time = std::max(least, launch.hang->patience());
  if (launch.doubt && launch.doubt->open) {
    if (!launch.doubt->until) launch.doubt->until = now_ + time;
    return;
  }
  std::optional<IncidentId> incident;
  if (launch.doubt) incident = launch.doubt->incident;
  const Blame blamed = judge(job, dump, IncidentKind::kHang, incident);
  if (!launch.doubt || launch.doubt->incident != *incident) incidents_.await(*incident);
  const Rank first = blamed.suspects.empty() ? Rank(-1) : blamed.suspects.front().rank;
  std::string reason = absl::StrFormat(
      "none yet: %s may only be slow; it is looked at again until nothing has moved for %.0f s",
      first.value() < 0 ? "it" : absl::StrCat("rank ", first.value()),
      to_seconds(now_ + time - launch.hang->last_progress()));
  incidents_.change(*incident)->action = reason;
  launch.doubt = Doubt{.incident = *incident,
                       .open = true,
                       .progress = launch.hang->last_step_or_phase(),
                       .began = now_,
                       .until = now_ + time,
                       .reason = std::move(reason)};
}

void Core::end_doubt_if_it_goes_on(Job& job) {
  const Launch& launch = launches_.at(job.id);
  if (!launch.doubt || !launch.doubt->open) return;
  const Duration stood = launch.hang->last_step_or_phase() - launch.doubt->progress;
  if (stood <= Duration::zero()) return;
  end_doubt(job, "none: it went on by itself",
            absl::StrFormat("it went on by itself after %.1f s", to_seconds(stood)));
}

// Whatever ends it, the incident that it opened says so.
void Core::end_doubt(const Job& job, std::string_view action, std::string text) {
  const auto launch = launches_.find(job.id);
  if (launch == launches_.end() || !launch->second.doubt) return;
  Doubt& doubt = *launch->second.doubt;
  if (!std::exchange(doubt.open, false)) return;
  incidents_.note(doubt.incident, unix_ns_, std::move(text));
  if (Incident* incident = incidents_.change(doubt.incident)) incident->action = action;
  incidents_.close(doubt.incident);
}

// The attempt is over, and so is what was known of it.
void Core::forget_launch(const Job& job) {
  const auto launch = launches_.find(job.id);
  if (launch == launches_.end()) return;
  if (launch->second.doubt) incidents_.settle(launch->second.doubt->incident);
  if (launch->second.silence) incidents_.settle(*launch->second.silence);
  launches_.erase(launch);
}

// What the evidence says, as `incident`, or as a new one where there is none to go on with.
Blame Core::judge(const Job& job, const Dump& dump, IncidentKind kind,
                  std::optional<IncidentId>& incident) {
  Launch& launch = launches_.at(job.id);
  BlameInput input = blame_input(job, dump, ranks_gone(job));
  Blame blamed = blame(input);
  if (!incident || incidents_.change(*incident) == nullptr) {
    Incident fresh;
    fresh.job = job.id;
    fresh.attempt = job.attempt;
    fresh.job_name = job.spec.name;
    fresh.moments.push_back({unix_ns_of(launch.hang->last_progress()), "last progress of the job"});
    incident = incidents_.open(std::move(fresh));
  }
  Incident& told = *incidents_.change(*incident);
  const bool same = told.open && told.kind == kind && told.sentence == blamed.sentence;
  if (told.moments.size() == 1 || !told.open) {
    incidents_.note(*incident, unix_ns_of(launch.suspected),
                    "suspected: " + launch.hang->reason(launch.suspected));
    launch.evidence = now_;
  }
  told.kind = kind;
  told.open = true;
  told.kernel_messages = dump.kernel_messages();
  take_blame(told, input, blamed);
  for (const WorkerName& name : dump.silent())
    incidents_.note(*incident, unix_ns_, absl::StrCat("worker ", name.value(), " sent no stacks"));
  incidents_.note(*incident, unix_ns_,
                  same ? "the verdict stands: nothing has moved" : "verdict: " + blamed.sentence);
  OpenSymbols named;
  named.incident = *incident;
  named.input = std::move(input);
  ask_for_symbols(dump, std::move(named));
  return blamed;
}

void Core::conclude_stuck(Job& job, const Dump& dump) {
  Launch& launch = launches_.at(job.id);
  const bool lost = !launch.unreachable.empty();
  if (launch.doubt && launch.doubt->open && !lost && !launch.incident) {
    launch.incident = launch.doubt->incident;
    launch.doubt->open = false;
  }
  if (lost) record_silence(job, workers_.at(*launch.unreachable.begin()));
  const Blame blamed =
      judge(job, dump, lost ? IncidentKind::kWorkerLost : IncidentKind::kHang, launch.incident);
  if (lost) {
    const std::set<WorkerName> gone = launch.unreachable;
    for (const WorkerName& name : gone) {
      if (is_live(job.state))
        give_up_ranks_of(job, name, "cannot be reached, and the others wait for it");
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
    blame_stuck_node(blamed.suspects.front(), dump);
  }
  fault(job, std::move(cause), Duration::zero(), IncidentKind::kHang);
  settle(job);
}

}  // namespace muster::coordinator
