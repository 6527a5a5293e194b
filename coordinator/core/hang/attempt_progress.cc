#include "coordinator/core/hang/attempt_progress.h"

#include <algorithm>
#include <cmath>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/text/absl_view.h"

namespace muster::coordinator {
namespace {

// The confidence that the slowest ranks of a slow job are a cause.
constexpr double kSlowRanksConfidence = 0.9;

// "a step takes 1.3 s, and its plan 1 s (+30%)". Where steps process more tokens than before, the
// earlier time is that for as many tokens.
std::string step_text(const StepFinding& finding, IncidentKind kind) {
  constexpr double kGrowthNamed = 1.01;
  const double more = 100 * (finding.seconds / finding.reference_seconds - 1);
  if (kind == IncidentKind::kSlowerThanPlan)
    return absl::StrFormat("a step takes %.3g s, and its plan %.3g s (%+.0f%%)", finding.seconds,
                           finding.reference_seconds, more);
  return absl::StrFormat("a step takes %.3g s, and took %.3g s before%s (%+.0f%%)", finding.seconds,
                         finding.reference_seconds,
                         finding.growth > kGrowthNamed ? " for as many tokens" : "", more);
}

}  // namespace

AttemptProgress::AttemptProgress(const CoreOptions& options, const Job& job, Instant now)
    : hang(options.hang, job.placement.size(), now,
           job.spec.is_program() ? HangDetector::PhaseReports::kLaterOrNever
                                 : HangDetector::PhaseReports::kFromTheStart,
           std::chrono::seconds(job.spec.hang_after_seconds)),
      stragglers(job.placement.size()),
      rank_history(job.placement.size()),
      step_watch(job, options.slower_than_plan_window),
      slow_node_watch(options.slower_than_plan_window),
      steps(job.placement.size()) {}

void AttemptProgress::forget(Rank rank) {
  hang.forget(static_cast<size_t>(rank.value()));
  stragglers.forget(static_cast<size_t>(rank.value()));
}

void AttemptProgress::observe(const RankProgress& progress, Instant now) {
  const auto index = static_cast<size_t>(progress.rank.value());
  const Instant start = now - std::min(progress.phase_age, now.time_since_epoch());
  const Instant newest = now - std::min(progress.last_progress_age, now.time_since_epoch());
  hang.observe(index,
               {.phase = progress.phase,
                .phase_start = start,
                .last_progress = newest,
                .step = progress.step,
                .step_seconds = progress.step_seconds,
                .steps = progress.step_times.total(),
                .seconds = progress.step_times.seconds,
                .halted = progress.process_state == 'T' || progress.process_state == 'Z'},
               now);
  stragglers.observe(index, {.steps = progress.step_times.total(),
                             .seconds = progress.step_times.seconds,
                             .collective_wait = progress.collective_wait_seconds,
                             .data_wait = progress.data_wait_seconds,
                             .main_thread = progress.main_thread});
}

void AttemptProgress::correct(const StackReportReceived& report, size_t ranks, Instant now) {
  for (const RankEvidence& rank : report.ranks) {
    const auto index = static_cast<size_t>(rank.rank);
    if (!rank.page_problem.empty() || rank.rank < 0 || index >= ranks) continue;
    hang.correct(index, rank.phase, rank.phase_age, rank.step, now);
  }
}

bool AttemptProgress::record_stragglers(IncidentBook& incidents, const Job& job,
                                        const CoreTime& time) {
  if (!stragglers.sample_is_due()) return false;
  for (const Stragglers::Change& change : stragglers.evaluate(time.now)) {
    const Rank rank(static_cast<int32_t>(change.rank));
    if (const auto known = slow.find(rank); known != slow.end()) {
      incidents.note(known->second.id, time.unix_ns, "it is as fast as the others again");
      incidents.close(known->second.id);
      slow.erase(known);
    }
    const WorkerName& worker = job.placement[change.rank].worker;
    // The incident of a slow node is also that of its ranks.
    const bool is_of_node =
        change.kind == SlowKind::kCompute && unmeasured_slow_node(job, worker) != nullptr;
    if (change.kind == SlowKind::kNone || is_of_node) continue;
    Fault what;
    what.rank = rank;
    what.worker = worker;
    what.unix_ns = time.unix_ns;
    what.message = absl::StrFormat(
        "rank %d on %s %s: %.3f s a step, where the median rank %s %.3f s; the others wait for it",
        rank.value(), what.worker.value(),
        change.kind == SlowKind::kData ? "waits for its data" : "computes slowly", change.seconds,
        change.kind == SlowKind::kData ? "waits" : "takes", change.median);
    const IncidentId id = incidents.open(incident_of_fault(job, what, IncidentKind::kSlowRank, 0));
    incidents.change(id)->action = "none: training continues";
    slow.emplace(rank, SlowRank{id, change.kind});
  }
  return true;
}

std::vector<Suspect> AttemptProgress::slow_ranks(const Job& job) const {
  constexpr size_t kSlowRanksMax = 3;
  constexpr double kScoreNamed = 1.15;
  std::vector<Suspect> suspects;
  const auto add = [&](Rank rank, std::string why) {
    if (suspects.size() == kSlowRanksMax) return;
    Suspect& suspect = suspects.emplace_back();
    suspect.rank = rank;
    suspect.worker = job.placement[static_cast<size_t>(rank.value())].worker;
    suspect.why = std::move(why);
  };
  for (const auto& [rank, incident] : slow)
    add(rank, absl::StrCat("is a slow rank (incident ", incident.id.value(), ")"));
  for (const auto& [rank, score] : straggler_scores(job, kSlowRanksMax)) {
    if (score < kScoreNamed || slow.contains(rank)) continue;
    add(rank,
        absl::StrFormat("takes %.2f times as long for its own work as the median rank", score));
  }
  for (Suspect& suspect : suspects)
    suspect.confidence = kSlowRanksConfidence / static_cast<double>(suspects.size());
  return suspects;
}

Incident AttemptProgress::incident_of_slow_steps(const Job& job, const StepFinding& finding,
                                                 IncidentKind kind, const CoreTime& time) const {
  const bool is_plan = kind == IncidentKind::kSlowerThanPlan;
  Fault what;
  what.unix_ns = time.unix_ns;
  what.message = step_text(finding, kind);
  if (is_plan || finding.part_is_known)
    absl::StrAppend(&what.message, "; most of the difference is ",
                    av(kStepPartNames[static_cast<size_t>(finding.part)]),
                    absl::StrFormat(" (%+.3g s)", finding.excess_seconds));
  Incident incident = incident_of_fault(job, what, kind, 0);
  RankHistory::Explanation ranks;
  if (!is_plan && finding.part != StepPart::kCheckpoint)
    ranks = rank_history.explain(stragglers, job, finding);
  // Ranks that always take longer than others are no cause if earlier times show the cause.
  if (is_plan || (!ranks.is_known && finding.part != StepPart::kCheckpoint))
    ranks.suspects = slow_ranks(job);
  if (!ranks.clause.empty()) absl::StrAppend(&incident.sentence, "; ", ranks.clause);
  for (const Suspect& suspect : ranks.suspects) {
    absl::StrAppend(&incident.sentence, "; ",
                    suspect.rank.value() < 0 ? suspect.worker.value()
                                             : absl::StrCat("rank ", suspect.rank.value(), " on ",
                                                            suspect.worker.value()),
                    " ", suspect.why);
  }
  incident.suspects = std::move(ranks.suspects);
  incident.action = "none: training continues";
  return incident;
}

void AttemptProgress::record_slow_steps(IncidentBook& incidents, const Job& job,
                                        const RankProgress& page, const CoreTime& time) {
  if (page.rank != Rank(0)) return;
  const StepWatch::Findings findings = step_watch.observe(page, time.now);
  if (findings.adds_to_history) rank_history.remember(stragglers);
  const auto record = [&](const std::optional<StepFinding>& finding, IncidentKind kind,
                          std::optional<IncidentId>& open) {
    if (!finding) return;
    if (finding->is_slower) {
      Incident incident = incident_of_slow_steps(job, *finding, kind, time);
      // The incident of a slow node is also that of the steps that it makes slower.
      for (const Suspect& suspect : incident.suspects) {
        const SlowNode* node = unmeasured_slow_node(job, suspect.worker);
        if (node == nullptr) continue;
        incidents.note(node->incident, time.unix_ns, step_text(*finding, kind));
        return;
      }
      open = incidents.open(std::move(incident));
    } else if (open) {
      incidents.note(*open, time.unix_ns, absl::StrCat("no longer: ", step_text(*finding, kind)));
      incidents.close(*open);
      open.reset();
    }
  };
  record(findings.plan, IncidentKind::kSlowerThanPlan, slower_than_plan);
  record(findings.history, IncidentKind::kSlowerThanBefore, slower_than_before);
}

void AttemptProgress::record_loss(IncidentBook& incidents, const Job& job, const RankProgress& page,
                                  const CoreTime& time) {
  if (!job.spec.is_program() || page.step < 1) return;
  if (not_finite) {
    if (not_finite->first != page.rank || !std::isfinite(page.loss)) return;
    incidents.note(not_finite->second, time.unix_ns,
                   absl::StrCat("the loss is finite again after step ", page.step));
    incidents.close(not_finite->second);
    not_finite->first = Rank(-1);
    return;
  }
  if (std::isfinite(page.loss)) return;
  Fault what;
  what.rank = page.rank;
  what.worker = job.placement[static_cast<size_t>(page.rank.value())].worker;
  what.unix_ns = time.unix_ns;
  what.last_step = page.step;
  what.message = absl::StrFormat("rank %d on %s reports a loss of %f after step %d",
                                 page.rank.value(), what.worker.value(), page.loss, page.step);
  const IncidentId id = incidents.open(incident_of_fault(job, what, IncidentKind::kNotFinite, 0));
  incidents.change(id)->action = "none: the program continues";
  not_finite.emplace(page.rank, id);
}

void AttemptProgress::close_incidents(IncidentBook& incidents, int64_t unix_ns) {
  const auto close = [&](IncidentId id) {
    incidents.note(id, unix_ns, "its attempt has ended");
    incidents.close(id);
  };
  for (const auto& [rank, incident] : slow) close(incident.id);
  if (slower_than_plan) close(*slower_than_plan);
  if (slower_than_before) close(*slower_than_before);
  if (not_finite && not_finite->first.value() >= 0) close(not_finite->second);
}

std::vector<std::pair<Rank, double>> AttemptProgress::straggler_scores(const Job& job,
                                                                       size_t count_max) const {
  std::vector<std::pair<Rank, double>> scores;
  for (const RankPlacement& rank : job.placement) {
    const double score = stragglers.score(static_cast<size_t>(rank.rank.value()));
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

Instant AttemptProgress::last_progress(const Job& job, Instant now) const {
  const bool shows = !hang.is_silent() || job.spec.hang_after_seconds > 0;
  return shows ? std::min(hang.last_progress(), now) : now;
}

}  // namespace muster::coordinator
