// Jobs that may hang, and dumps of stacks: takes the steps that hang/ladder.h decides, and answers
// users who request stacks.
#include <utility>

#include <absl/strings/str_cat.h>

#include "coordinator/core/core.h"

namespace muster::coordinator {

void Core::on(const StacksRequested& event) {
  const auto found = jobs_.unfinished(event.job, event.caller, "request its stacks");
  const auto refuse = [&](absl::Status status) {
    actions_.push_back(ReplyStacks{event.token, std::move(status), {}});
  };
  if (!found.ok()) return refuse(found.status());
  auto messages =
      dumps_.request(event, **found, fleet_, attempts_.unreachable(event.job), options_, time_.now);
  if (!messages.ok()) return refuse(messages.status());
  append(actions_, *std::move(messages));
}

void Core::on(const StackReportReceived& event) {
  Worker* worker = fleet_.receive(event.worker, event.incarnation, time_.now);
  if (worker == nullptr) return;
  OpenDump* open = dumps_.find(event.dump);
  if (open == nullptr || !open->dump.add(event)) return;
  if (open->request) {
    return append(actions_,
                  dumps_.answer_if_over(event.dump, fleet_, attempts_.unreachable(open->dump.job()),
                                        options_, time_.now));
  }
  Job& job = jobs_.at(open->dump.job());
  attempts_.at(event.job).progress.correct(event, job.ranks.size(), time_.now);
  climb(job);
}

void Core::on(const SymbolsReceived& event) {
  Worker* worker = fleet_.receive(event.worker, event.incarnation, time_.now);
  if (worker == nullptr) return;
  if (std::optional<ReplyStacks> reply = dumps_.add(event, incidents_))
    actions_.push_back(*std::move(reply));
}

void Core::climb(Job& job) {
  if (job.cancel_requested || !is_running(job.state) || fleet_.is_cut_off()) return;
  LiveAttempt& attempt = attempts_.at(job.id);
  const LadderContext context{fleet_, dumps_, incidents_, options_, time_};
  const LadderView view = attempt.ladder_view(job, fleet_, time_.now);
  const Instant confirmable =
      attempts_.loss_confirmable_at(job, jobs_, fleet_, nodes_, options_, time_);
  attempt.ladder.conclude_probe(view, attempt.progress.hang, context);
  while (auto step = attempt.ladder.next(view, confirmable, attempt.progress.hang, context))
    take_step(job, *std::move(step));
  if (job.state == JobState::kDumping && attempt.ladder.is_dump_over(view, confirmable, context))
    conclude_dump(job);
}

void Core::take_step(Job& job, LadderStep step) {
  job.state = step.state;
  if (job.state == JobState::kSuspect)
    suspects_.insert(job.id);
  else
    suspects_.erase(job.id);
  append(actions_, std::move(step.messages));
  if (!step.reason.empty()) jobs_.note(job, std::move(step.reason));
}

void Core::conclude_dump(Job& job) {
  LiveAttempt& attempt = attempts_.at(job.id);
  const LadderContext context{fleet_, dumps_, incidents_, options_, time_};
  const Dump dump = attempt.ladder.take_dump(dumps_);
  for (const auto& [name, how] :
       no_longer_unreachable(attempt.view(job), attempt.reach, fleet_, time_.now))
    (void)attempt.mark_reachable(job, name, how, incidents_, dumps_, time_);
  std::optional<LadderStep> step = attempt.ladder.conclude(
      attempt.ladder_view(job, fleet_, time_.now), dump,
      attempts_.loss_confirmable_at(job, jobs_, fleet_, nodes_, options_, time_),
      attempt.progress.hang, context);
  if (step)
    take_step(job, *std::move(step));
  else
    conclude_stuck(job, dump);
  suspect_unreachable(job);
}

// Makes a running job suspect again if one of its workers cannot be reached.
void Core::suspect_unreachable(Job& job) {
  const std::set<WorkerName>* unreachable = attempts_.unreachable(job.id);
  if (job.state != JobState::kRunning || unreachable == nullptr || unreachable->empty()) return;
  LiveAttempt& attempt = attempts_.at(job.id);
  take_step(job, attempt.ladder.suspect(attempt.ladder_view(job, fleet_, time_.now),
                                        "a worker still cannot be reached", attempt.progress.hang,
                                        {fleet_, dumps_, incidents_, options_, time_}));
}

// Drops the dumps of jobs that may hang, because no worker can answer.
void Core::stop_sampling() {
  for (const JobId id : attempts_.jobs()) {
    Job& job = jobs_.at(id);
    Ladder& ladder = attempts_.at(id).ladder;
    if (job.state == JobState::kDumping) {
      take_step(job, ladder.resume(job, "no worker reports, so no stacks can be read", dumps_));
      suspect_unreachable(job);
    } else if (ladder.suspicion().probe) {
      take_step(job, ladder.leave(job, dumps_));
    }
  }
}

void Core::conclude_stuck(Job& job, const Dump& dump) {
  LiveAttempt& attempt = attempts_.at(job.id);
  const std::set<WorkerName> lost = attempt.reach.unreachable;
  if (!lost.empty())
    record_silence(incidents_, attempt.reach, attempt.incident, attempt.view(job),
                   fleet_.at(*lost.begin()), time_);
  StuckJob stuck = attempt.ladder.judge_stuck(attempt.ladder_view(job, fleet_, time_.now), dump,
                                              attempt.progress.hang, attempt.incident,
                                              {fleet_, dumps_, incidents_, options_, time_});
  append(actions_, std::move(stuck.messages));
  if (lost.empty()) {
    const auto cut = stuck.is_cut_link
                         ? find_cut_link(attempt.view(job), attempt.links, fleet_, time_.now)
                         : std::nullopt;
    const bool counts = cut && (!cut->peer.value().empty() ||
                                cut_link_due(*cut, attempt.progress.hang, true) <= time_.now);
    if (counts) {
      stuck.fault = fault_of_cut_link(job, *cut, time_.unix_ns);
      stuck.node.reset();
      stuck.is_inconclusive = false;
    }
    if (stuck.is_inconclusive) job.ended_without_proof = true;
    if (stuck.node) suspect_node(stuck.fault.worker, *std::move(stuck.node));
    fault(job, std::move(stuck.fault));
    return settle(job);
  }
  for (const WorkerName& name : lost) {
    if (is_live(job.state))
      give_up_ranks_of(job, name, "cannot be reached, and the others wait for it");
  }
  if (!is_running(job.state)) return;
  take_step(job, attempt.ladder.resume(job, "no rank of a worker that cannot be reached is left",
                                       dumps_));
}

}  // namespace muster::coordinator
