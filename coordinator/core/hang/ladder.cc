#include "coordinator/core/hang/ladder.h"

#include <algorithm>
#include <map>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/process/exit_code.h"
#include "common/text/absl_view.h"

namespace muster::coordinator {

std::optional<LadderStep> Ladder::next(const LadderView& view, Instant confirmable_at,
                                       const HangDetector& hang, const LadderContext& context) {
  const Job& job = view.job;
  const Instant now = context.time.now;
  close_if_resumed(context.incidents, state_, hang, context.time.unix_ns);
  const bool still = hang.due() <= now;
  if (job.state == JobState::kRunning) {
    // A rank that has lost a peer exits, and the other ranks will follow. The report of the lost
    // peer is awaited.
    if (view.peer_lost) return std::nullopt;
    return still ? suspect(view, hang.reason(now), hang, context) : probe(view, hang, context);
  }
  if (job.state == JobState::kDumping) return std::nullopt;
  if (!still) {
    if (!view.unreachable.empty()) return std::nullopt;
    return resume(job, "it makes progress again", context.dumps);
  }
  std::erase_if(state_.pages_awaited, [&](const WorkerName& name) {
    const Worker* worker = context.fleet.find(name);
    return worker == nullptr || !worker->connected || !has_ranks(job, view.ranks, *worker);
  });
  const bool is_early = state_.next_dump && *state_.next_dump > now;
  if (is_early || view.peer_lost || !state_.pages_awaited.empty() ||
      confirmable_at - time_of_dump(context.options) > now)
    return std::nullopt;
  std::optional<DumpTable::Begun> begun =
      context.dumps.begin(job, Rank(-1), {2, context.options.sample_deadline}, std::nullopt,
                          context.fleet, view.unreachable, context.options, now);
  if (!begun) return std::nullopt;  // no worker is connected; the lease decides
  state_.dump = begun->id;
  return LadderStep{JobState::kDumping,
                    absl::StrCat(hang.reason(now), "; the stacks of its ranks are read"),
                    std::move(begun->messages)};
}

std::optional<LadderStep> Ladder::probe(const LadderView& view, const HangDetector& hang,
                                        const LadderContext& context) {
  const Instant now = context.time.now;
  if (state_.probe || hang.next_probe() > now || !view.unreachable.empty()) return std::nullopt;
  std::optional<DumpTable::Begun> begun =
      context.dumps.begin(view.job, Rank(-1), {1, context.options.sample_deadline}, std::nullopt,
                          context.fleet, view.unreachable, context.options, now);
  if (!begun) return std::nullopt;
  state_.probe = begun->id;
  return LadderStep{JobState::kRunning, "", std::move(begun->messages)};
}

void Ladder::conclude_probe(const LadderView& view, HangDetector& hang,
                            const LadderContext& context) {
  if (!state_.probe) return;
  const OpenDump* open = context.dumps.find(*state_.probe);
  if (!is_over(*open, context.fleet, &view.unreachable, context.time.now)) return;
  const Dump dump = context.dumps.take(*std::exchange(state_.probe, std::nullopt)).dump;
  const std::map<Rank, std::string> gone = ranks_gone(view.job, view.unreachable);
  const Instant now = context.time.now;
  const bool is_complete = view.unreachable.empty() && dump.waiting().empty();
  hang.conclude_probe(is_complete && proves_hang(dump, gone, motion_in(dump, gone), hang, now),
                      now);
}

LadderStep Ladder::suspect(const LadderView& view, std::string reason, const HangDetector& hang,
                           const LadderContext& context) {
  state_.begin(hang, context.time.now);
  for (const auto& [name, ranks] : view.ranks) {
    const Worker* worker = context.fleet.find(name);
    if (worker == nullptr || !has_ranks(view.job, view.ranks, *worker)) continue;
    const bool reachable = worker->connected && !view.unreachable.contains(name);
    if (reachable && worker->last_heartbeat < hang.due()) state_.pages_awaited.insert(name);
  }
  return {JobState::kSuspect, std::move(reason)};
}

LadderStep Ladder::resume(const Job& job, std::string_view reason, DumpTable& dumps) {
  LadderStep step = leave(job, dumps);
  // An inconclusive hang that no completed step has ended gets its full time again from the next
  // dump on.
  if (state_.inconclusive) state_.inconclusive->until.reset();
  step.reason = absl::StrCat("attempt ", job.attempt.value(), ": continues: ", av(reason));
  return step;
}

std::optional<LadderStep> Ladder::resume_reachable(const Job& job, std::string_view reason,
                                                   DumpTable& dumps) {
  if (job.state != JobState::kSuspect || state_.next_dump) return std::nullopt;
  return resume(job, reason, dumps);
}

LadderStep Ladder::leave(const Job& job, DumpTable& dumps) {
  if (state_.dump) dumps.drop(*state_.dump);
  if (state_.probe) dumps.drop(*state_.probe);
  state_.end();
  return {is_running(job.state) ? JobState::kRunning : job.state, ""};
}

bool Ladder::is_dump_over(const LadderView& view, Instant confirmable_at,
                          const LadderContext& context) const {
  const Instant now = context.time.now;
  const OpenDump& open = *context.dumps.find(*state_.dump);
  if (!is_over(open, context.fleet, &view.unreachable, now)) return false;
  // Waits if a somewhat longer silence is enough for the verdict on a silent worker.
  const bool is_soon =
      confirmable_at > now && confirmable_at - time_of_dump(context.options) <= now;
  return !is_soon || open.deadline <= now;
}

Dump Ladder::take_dump(DumpTable& dumps) {
  return dumps.take(*std::exchange(state_.dump, std::nullopt)).dump;
}

std::optional<LadderStep> Ladder::conclude(const LadderView& view, const Dump& dump,
                                           Instant confirmable_at, HangDetector& hang,
                                           const LadderContext& context) {
  const Job& job = view.job;
  const Instant now = context.time.now;
  const Verdict verdict = verdict_of(dump, ranks_gone(job, view.unreachable), state_, hang,
                                     view.peer_lost, confirmable_at <= now, now);
  switch (verdict) {
    case Verdict::kProgress:
      hang.record_progress(now);
      (void)hang.double_patience();
      close_if_resumed(context.incidents, state_, hang, context.time.unix_ns);
      return resume(job, "it made progress while its stacks were read", context.dumps);
    case Verdict::kExcused:
      return resume(job, "a rank is in a phase that may take longer", context.dumps);
    case Verdict::kPeerLost:
      return resume(job, "a rank has lost a peer, and what became of that is waited for",
                    context.dumps);
    case Verdict::kSlow:
      return resume(job, "it is slow: its ranks have moved; they are sampled again later",
                    context.dumps);
    case Verdict::kUnseen:
    case Verdict::kInconclusive:
      return sample_once_more(view, dump, verdict == Verdict::kUnseen, hang, context);
    case Verdict::kStuck:
      break;
  }
  return std::nullopt;
}

// Samples the job again after missing reports. A worker that sends one report late is busy, which
// shows nothing about the job. An unreachable worker has an incident of its own, and the lease
// bounds the wait for it.
std::optional<LadderStep> Ladder::sample_once_more(const LadderView& view, const Dump& dump,
                                                   bool unseen, HangDetector& hang,
                                                   const LadderContext& context) {
  const Instant now = context.time.now;
  const CoreOptions& options = context.options;
  std::optional<InconclusiveHang>& inconclusive = state_.inconclusive;
  LadderStep step{JobState::kSuspect, "its stacks were not read in time; they are read again"};
  const bool is_late = unseen && ++state_.late_dumps == 1;
  Duration pause = options.samples_apart;
  if (!is_late && view.unreachable.empty()) {
    const bool is_open = inconclusive && inconclusive->open;
    const std::map<Rank, std::string> gone = ranks_gone(view.job, view.unreachable);
    const auto plan_now = [&] {
      return inconclusive_plan(view.job, dump, gone, is_open ? &*inconclusive : nullptr, hang,
                               options, now);
    };
    InconclusivePlan plan = plan_now();
    if (is_open && plan.until <= now) {
      if (!renew_inconclusive(*inconclusive, hang, now)) return std::nullopt;
      plan = plan_now();
    }
    if (!is_open) {
      if (const auto early = reason_to_wait(view.job, dump, gone, plan, hang, now)) {
        step.reason = early->text;
        pause = std::max(pause, (now - hang.last_step_or_phase()) / 2);
        return sample_later(
            std::move(step), view.job,
            std::min(pause, std::max<Duration>(options.samples_apart, early->until - now)),
            context);
      }
      std::optional<IncidentId> incident;
      if (inconclusive) incident = inconclusive->incident;
      const Blame blamed =
          judge(view, dump, IncidentKind::kHang, hang, incident, step.messages, context);
      if (!inconclusive || inconclusive->incident != *incident) context.incidents.await(*incident);
      inconclusive = open_inconclusive(context.incidents, *incident, blamed, hang, plan,
                                       activities_in(dump, dump.samples() - 1, gone), now);
    }
    inconclusive->until = plan.until;
    step.reason = inconclusive->reason;
    pause = std::min(std::max(pause, now - inconclusive->began), *inconclusive->until - now);
  }
  return sample_later(std::move(step), view.job, pause, context);
}

LadderStep Ladder::sample_later(LadderStep step, const Job& job, Duration pause,
                                const LadderContext& context) {
  (void)leave(job, context.dumps);
  state_.next_dump = context.time.now + pause;
  return step;
}

StuckJob Ladder::judge_stuck(const LadderView& view, const Dump& dump, const HangDetector& hang,
                             std::optional<IncidentId>& incident, const LadderContext& context) {
  const bool is_lost = !view.unreachable.empty();
  std::optional<InconclusiveHang>& inconclusive = state_.inconclusive;
  StuckJob stuck;
  if (inconclusive && inconclusive->open && !is_lost && !incident) {
    incident = inconclusive->incident;
    inconclusive->open = false;
    stuck.is_inconclusive = inconclusive->until && *inconclusive->until <= context.time.now;
  }
  const Blame blamed = judge(view, dump, is_lost ? IncidentKind::kWorkerLost : IncidentKind::kHang,
                             hang, incident, stuck.messages, context);
  stuck.is_cut_link = blamed.is_cut_link;
  Fault& fault = stuck.fault;
  fault.kind = IncidentKind::kHang;
  fault.exit_code = to_int(ExitCode::kFailure);
  fault.unix_ns = context.time.unix_ns;
  fault.message = absl::StrCat("hang: ", blamed.sentence);
  for (const RankState& rank : view.job.ranks)
    fault.last_step = std::max(fault.last_step, rank.step);
  if (blamed.suspects.empty()) return stuck;
  const Suspect& first = blamed.suspects.front();
  fault.rank = first.rank;
  fault.worker = first.worker;
  if (std::string text = stuck_node_text(first, dump); !text.empty())
    stuck.node = NodeSuspicion{Suspicion::kStuck, std::move(text)};
  return stuck;
}

Blame Ladder::judge(const LadderView& view, const Dump& dump, IncidentKind kind,
                    const HangDetector& hang, std::optional<IncidentId>& incident,
                    std::vector<SendToWorker>& messages, const LadderContext& context) {
  BlameInput input = blame_input(view.job, dump, ranks_gone(view.job, view.unreachable));
  input.cut_link = view.cut_link;
  Blame blamed = record_verdict(context.incidents, view.job, dump, input, kind, state_, hang,
                                incident, context.time);
  messages = context.dumps.look_up(context.incidents, *incident, dump, std::move(input),
                                   context.fleet, context.options, context.time.now);
  return blamed;
}

void Ladder::close_inconclusive(IncidentBook& incidents, std::string_view action, std::string text,
                                int64_t unix_ns) {
  coordinator::close_inconclusive(incidents, state_, action, std::move(text), unix_ns);
}

std::optional<IncidentId> Ladder::take_inconclusive() {
  if (!state_.inconclusive || !std::exchange(state_.inconclusive->open, false)) return std::nullopt;
  return state_.inconclusive->incident;
}

void Ladder::release(IncidentBook& incidents) const {
  if (state_.inconclusive) incidents.settle(state_.inconclusive->incident);
}

}  // namespace muster::coordinator
