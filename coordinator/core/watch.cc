// What the ranks' figures say, as they come with heartbeats and dumps: whether the job makes progress, and who holds it up.
#include <algorithm>
#include <utility>

#include <absl/strings/str_format.h>

#include "coordinator/core/core.h"

namespace muster::coordinator {

// Of a new launch, or of one that an earlier life of the coordinator has started.
void Core::begin_watching(const Job& job) {
  Launch& launch = launches_[job.id];
  using Speech = HangDetector::Speech;
  launch.hang.emplace(options_.hang, job.placement.size(), now_,
                      job.spec.is_program() ? Speech::kPerhapsLater : Speech::kFromTheStart,
                      std::chrono::seconds(job.spec.hang_after_seconds));
  launch.stragglers.emplace(job.placement.size());
  launch.attempt.emplace(job.placement.size());
  launch.reach_check = now_;
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
  const size_t count = std::min(scores.size(), count_max);
  std::partial_sort(scores.begin(), scores.begin() + static_cast<std::ptrdiff_t>(count),
                    scores.end(), [](const auto& a, const auto& b) {
                      return a.second != b.second ? a.second > b.second : a.first < b.first;
                    });
  scores.resize(count);
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

}  // namespace muster::coordinator
