#include "coordinator/core/hang/suspicion.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace muster::coordinator {
namespace {

// Returns whether heartbeats or the dump show progress since the suspicion began. Heartbeats may be
// delayed, so the steps and phases in a dump may be newer.
bool shows_progress(const Dump& dump, const HangSuspicion& suspicion, const HangDetector& hang) {
  if (hang.last_step_or_phase() > suspicion.progress_then) return true;
  const std::vector<RankEvidence> ranks = dump.newest_ranks();
  return std::any_of(ranks.begin(), ranks.end(), [&](const RankEvidence& rank) {
    return rank.page_problem.empty() && rank.step > suspicion.step_then;
  });
}

}  // namespace

bool proves_hang(const Dump& dump, const std::map<Rank, std::string>& gone, Motion motion,
                 const HangDetector& hang, Instant now) {
  const bool is_usual_pause = now - hang.last_step_or_phase() < 2 * hang.longest_pause();
  return motion == Motion::kNone ||
         (motion == Motion::kUnsure && !is_usual_pause &&
          standstill_in(dump, gone, {}, Duration::zero()) == Standstill::kStoppedChild);
}

void HangSuspicion::begin(const HangDetector& hang, Instant now) {
  suspected = now;
  progress_then = hang.last_step_or_phase();
  step_then = hang.newest_step();
  pages_awaited.clear();
  late_dumps = 0;
}

void HangSuspicion::end() {
  dump.reset();
  probe.reset();
  pages_awaited.clear();
  next_dump.reset();
}

void HangSuspicion::excuse(Duration time) {
  suspected += time;
  evidence += time;
  progress_then += time;
  if (next_dump) *next_dump += time;
  if (!inconclusive) return;
  inconclusive->progress += time;
  inconclusive->began += time;
  if (inconclusive->until) *inconclusive->until += time;
}

Verdict verdict_of(const Dump& dump, const std::map<Rank, std::string>& gone,
                   const HangSuspicion& suspicion, HangDetector& hang, bool peer_lost,
                   bool confirmed, Instant now) {
  const Motion motion = motion_in(dump, gone);
  if (shows_progress(dump, suspicion, hang) || motion == Motion::kProgress)
    return Verdict::kProgress;
  const bool is_proof = proves_hang(dump, gone, motion, hang, now);
  const bool is_phase = hang.due_by_time() > now;  // according to the pages in the dump
  if (is_phase && !is_proof) hang.withdraw_proof(now);
  if (hang.due() > now) return Verdict::kExcused;
  if (peer_lost) return Verdict::kPeerLost;
  if (motion == Motion::kStacks && hang.double_patience()) return Verdict::kSlow;
  if (motion == Motion::kUnseen) return Verdict::kUnseen;
  if (is_phase && confirmed) return Verdict::kStuck;
  if ((motion == Motion::kUnsure && !hang.is_silent()) || !confirmed) return Verdict::kInconclusive;
  return Verdict::kStuck;
}

std::map<Rank, std::string> ranks_gone(const Job& job, const std::set<WorkerName>& unreachable) {
  std::map<Rank, std::string> gone;
  for (const RankPlacement& rank : job.placement) {
    if (unreachable.contains(rank.worker))
      gone[rank.rank] =
          absl::StrCat("is on worker ", rank.worker.value(), ", which does not answer");
  }
  for (const RankExit& exit : job.exits) {
    gone[exit.rank] = exit.signal > 0 ? absl::StrCat("was killed by signal ", exit.signal)
                                      : absl::StrCat("exited with code ", exit.exit_code);
  }
  return gone;
}

Blame record_verdict(IncidentBook& incidents, const Job& job, const Dump& dump,
                     const BlameInput& input, IncidentKind kind, HangSuspicion& suspicion,
                     const HangDetector& hang, std::optional<IncidentId>& incident,
                     const CoreTime& time) {
  Blame blamed = blame(input);
  if (!incident || incidents.change(*incident) == nullptr) {
    Incident fresh;
    fresh.job = job.id;
    fresh.attempt = job.attempt;
    fresh.job_name = job.spec.name;
    fresh.owner = job_owner(job.spec);
    fresh.moments.push_back({time.unix_ns_of(hang.last_progress()), "last progress of the job"});
    incident = incidents.open(std::move(fresh));
  }
  Incident& record = *incidents.change(*incident);
  const bool same = record.open && record.kind == kind && record.sentence == blamed.sentence;
  if (record.moments.size() == 1 || !record.open) {
    incidents.note(*incident, time.unix_ns_of(suspicion.suspected),
                   "suspected: " + hang.reason(suspicion.suspected));
    suspicion.evidence = time.now;
  }
  record.kind = kind;
  record.open = true;
  record.kernel_messages = dump.kernel_messages();
  take_blame(record, input, blamed);
  for (const WorkerName& name : dump.silent())
    incidents.note(*incident, time.unix_ns,
                   absl::StrCat("worker ", name.value(), " sent no stacks"));
  incidents.note(*incident, time.unix_ns,
                 same ? "the verdict stands: nothing has moved" : "verdict: " + blamed.sentence);
  return blamed;
}

InconclusivePlan inconclusive_plan(const Job& job, const Dump& dump,
                                   const std::map<Rank, std::string>& gone,
                                   const InconclusiveHang* open, const HangDetector& hang,
                                   const CoreOptions& options, Instant now) {
  const HangBudgets& budgets = options.hang;
  InconclusivePlan plan;
  if (!job.spec.is_program()) {
    const bool is_set = open != nullptr && open->until;
    plan.until = is_set ? *open->until : now + std::max(budgets.unsure, hang.patience());
    return plan;
  }
  plan.standstill = standstill_in(dump, gone, open != nullptr ? open->activities : Activities(),
                                  open != nullptr ? now - open->began : Duration::zero());
  Duration time = budgets.unsure_stopped_child;
  if (plan.standstill != Standstill::kStoppedChild) {
    const Duration least =
        plan.standstill == Standstill::kIdle ? budgets.unsure_idle : budgets.unsure_program;
    time = std::max(least, 2 * hang.patience());
  }
  time = std::max(time, 2 * hang.longest_pause());
  if (job.ended_without_proof) time = std::max(time, budgets.first_steps);
  plan.until = hang.last_step_or_phase() + time;
  // The next dump can be no sooner, and a renewed hang gets the time again.
  plan.until = std::max(plan.until, open == nullptr ? now + options.samples_apart
                                                    : open->began + options.samples_apart);
  return plan;
}

std::optional<ReasonToWait> reason_to_wait(const Job& job, const Dump& dump,
                                           std::map<Rank, std::string> gone,
                                           const InconclusivePlan& plan, const HangDetector& hang,
                                           Instant now) {
  constexpr Duration kOneRankWorks = std::chrono::seconds(10);
  // If nothing distinguishes the ranks, all of them may compute, and an incident names no rank: it
  // is opened shortly before the attempt is ended.
  constexpr Duration kBeforeEnd = std::chrono::seconds(5);
  if (!job.spec.is_program() || plan.standstill != Standstill::kMayContinue) return std::nullopt;
  const Blame blamed = blame(blame_input(job, dump, std::move(gone)));
  const Instant since = hang.last_step_or_phase();
  const Duration whole = plan.until - since;
  const Duration time =
      blamed.shape == HangShape::kUnclear
          ? std::max(whole / 2, whole - kBeforeEnd)
          : std::min(whole / 2, std::max(kOneRankWorks, hang.longest_pause() * 5 / 4));
  if (now >= since + time) return std::nullopt;
  return ReasonToWait{
      absl::StrCat("it may only be slow: ", hang.reason(now), "; ", blamed.sentence), since + time};
}

InconclusiveHang open_inconclusive(IncidentBook& incidents, IncidentId incident,
                                   const Blame& blamed, const HangDetector& hang,
                                   const InconclusivePlan& plan, Activities activities,
                                   Instant now) {
  const Rank first = blamed.suspects.empty() ? Rank(-1) : blamed.suspects.front().rank;
  const std::string who =
      plan.standstill == Standstill::kIdle ? "no process works, but the job may wait for something"
      : first.value() < 0                  ? "it may only be slow"
                          : absl::StrCat("rank ", first.value(), " may only be slow");
  std::string reason =
      absl::StrFormat("none yet: %s; it is sampled until nothing has moved for %.0f s", who,
                      to_seconds(plan.until - hang.last_progress()));
  incidents.change(incident)->action = reason;
  return {.incident = incident,
          .open = true,
          .progress = hang.last_step_or_phase(),
          .began = now,
          .activities = std::move(activities),
          .until = plan.until,
          .reason = std::move(reason)};
}

bool renew_inconclusive(InconclusiveHang& inconclusive, HangDetector& hang, Instant now) {
  const bool moved = hang.last_progress() > inconclusive.began;
  if (!moved || !hang.double_patience()) return false;
  inconclusive.until.reset();
  inconclusive.began = now;
  return true;
}

void close_inconclusive(IncidentBook& incidents, HangSuspicion& suspicion, std::string_view action,
                        std::string text, int64_t unix_ns) {
  if (!suspicion.inconclusive) return;
  InconclusiveHang& inconclusive = *suspicion.inconclusive;
  if (!std::exchange(inconclusive.open, false)) return;
  incidents.note(inconclusive.incident, unix_ns, std::move(text));
  if (Incident* incident = incidents.change(inconclusive.incident)) incident->action = action;
  incidents.close(inconclusive.incident);
}

void close_if_resumed(IncidentBook& incidents, HangSuspicion& suspicion, const HangDetector& hang,
                      int64_t unix_ns) {
  if (!suspicion.inconclusive || !suspicion.inconclusive->open) return;
  const Duration stood = hang.last_step_or_phase() - suspicion.inconclusive->progress;
  if (stood <= Duration::zero()) return;
  close_inconclusive(incidents, suspicion, "none: it resumed by itself",
                     absl::StrFormat("it resumed by itself after %.1f s", to_seconds(stood)),
                     unix_ns);
}

std::string stuck_node_text(const Suspect& suspect, const Dump& dump) {
  for (const RankEvidence& rank : dump.newest_ranks()) {
    if (rank.rank != suspect.rank.value()) continue;
    const bool waits = rank.process_state == 'D';
    if (!waits && rank.process_state != 'T') continue;
    return absl::StrCat("rank ", rank.rank, " hung there, ",
                        waits ? "waiting in the kernel (D state)" : "stopped (T state)");
  }
  return "";
}

}  // namespace muster::coordinator
