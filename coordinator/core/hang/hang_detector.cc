#include "coordinator/core/hang/hang_detector.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/text/absl_view.h"

namespace muster::coordinator {
namespace {

// The number of recent steps whose longest determines how long a step may take. Few enough to
// forget a bad minute, enough for steps of different lengths.
constexpr size_t kStepsRemembered = 16;
// The first step of an attempt allocates and warms up, so its time is not typical.
constexpr uint64_t kWarmUpSteps = 1;
constexpr uint64_t kStepsKnown = 3;
constexpr int32_t kPhaseMargin = 3;
// The number of completed evaluations or checkpoints whose duration is typical.
constexpr int32_t kPhasesLearned = 2;
// The bound of a step time, because a page may contain any value. A day is longer than any step and
// does not overflow the clock.
constexpr double kStepSecondsMax = 86'400;

Duration duration_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

double sane_seconds(double seconds) {
  return std::isfinite(seconds) ? std::clamp(seconds, 0.0, kStepSecondsMax) : 0;
}

// Returns the phase, or for an unknown phase of a later version the phase with the longest budget.
Phase known(Phase phase) {
  return static_cast<size_t>(phase) < kPhaseNames.size() ? phase : Phase::kCompile;
}

}  // namespace

HangDetector::HangDetector(const HangBudgets& budgets, size_t ranks, Instant now,
                           PhaseReports speech, Duration silence_max)
    : budgets_(budgets),
      silence_max_(silence_max),
      ranks_(ranks),
      progress_(now),
      foreground_(now) {
  const bool silent = speech == PhaseReports::kLaterOrNever;
  (silent ? silent_ : in_phase_[static_cast<size_t>(Phase::kInit)]) = static_cast<int32_t>(ranks);
  for (Rank& rank : ranks_) {
    rank.phase_start = now;
    rank.silent = silent;
  }
}

// Returns whether the rank remains silent. A rank stops being silent when it reports its first
// phase.
bool HangDetector::stays_silent(Rank& rank, const Sample& sample) {
  if (!rank.silent) return false;
  if (sample.phase == Phase::kInit && sample.steps == 0) return true;
  rank.silent = false;
  --silent_;
  ++in_phase_[static_cast<size_t>(rank.phase)];
  rank.phase_start = sample.phase_start;
  return false;
}

bool HangDetector::is_silent() const {
  return silent_ > 0 &&
         std::all_of(in_phase_.begin(), in_phase_.end(), [](int32_t ranks) { return ranks == 0; });
}

void HangDetector::observe(size_t index, const Sample& sample, Instant now) {
  Rank& rank = ranks_[index];
  // A page with fewer steps is older than a page that arrived before.
  if (std::pair(sample.steps, sample.step) < std::pair(rank.steps, rank.step)) return;
  if (rank.ended) return;
  if (rank.halted != sample.halted) {
    rank.halted = sample.halted;
    halted_ += rank.halted ? 1 : -1;
    if (rank.halted && halted_ == 1) halted_since_ = now;
  }
  if (stays_silent(rank, sample)) return observe_silent(sample.last_progress, now);
  // A page that has not changed shows no step: after a rollback, its step may be above the newest.
  const bool is_news = std::pair(sample.steps, sample.step) != std::pair(rank.steps, rank.step);
  if (sample.step < rank.step) roll_back(sample.step, now);
  rank.step = sample.step;
  learn_silence(std::min(sample.last_progress, now));
  progress_ = std::max(progress_, std::min(sample.last_progress, now));
  foreground_ = std::max(foreground_, std::min(sample.phase_start, now));
  if (is_news) see_step(sample.step, now);
  progress_ = std::max(progress_, foreground_);
  change_phase(rank, sample);
  learn_step(rank, sample);
  if (!trains()) paused_ = step_;
}

void HangDetector::observe_silent(Instant sign_of_life, Instant now) {
  if (sign_of_life <= progress_) return;
  shows_life_ = true;
  record_progress(std::min(sign_of_life, now));
}

void HangDetector::correct(size_t index, Phase phase, Duration phase_age, int64_t step,
                           Instant now) {
  Rank& rank = ranks_[index];
  if (rank.ended || rank.silent) return;
  const Instant phase_start = now - std::min(phase_age, now.time_since_epoch());
  // If heartbeats have reported a later phase, the dump is older.
  if (known(phase) != rank.phase && phase_start > rank.phase_start) {
    Sample sample;
    sample.phase = phase;
    sample.phase_start = phase_start;
    record_progress(sample.phase_start);
    change_phase(rank, sample);
    if (!trains()) paused_ = step_;
  }
  see_step(step, now);
}

void HangDetector::see_step(int64_t step, Instant now) {
  if (step <= seen_) return;
  seen_ = step;
  record_progress(now);
}

// The rank has completed further steps, but its counter is lower: it returned to an earlier state.
// The steps that follow are progress, as they were the first time.
void HangDetector::roll_back(int64_t step, Instant now) {
  seen_ = std::min(seen_, step);
  step_ = std::min(step_, step);
  paused_ = std::min(paused_, step);
  record_progress(now);
}

void HangDetector::change_phase(Rank& rank, const Sample& sample) {
  const Phase phase = known(sample.phase);
  if (phase != rank.phase) {
    PhaseTimes& left = phase_times_[static_cast<size_t>(rank.phase)];
    if (--in_phase_[static_cast<size_t>(rank.phase)] == 0)
      left.longest = std::max(left.longest, sample.phase_start - left.began);
    PhaseTimes& entered = phase_times_[static_cast<size_t>(phase)];
    const bool is_first = ++in_phase_[static_cast<size_t>(phase)] == 1;
    if (is_first && (entered.count == 0 || entered.step != seen_)) {
      ++entered.count;
      entered.step = seen_;
      entered.began = sample.phase_start;
    }
    rank.phase = phase;
  }
  rank.phase_start = sample.phase_start;
}

// Records the durations of steps. If several steps lie between two heartbeats, their mean and the
// duration of the last step are known. A step in which a rank evaluated or saved does not count,
// because the times of waiting ranks include this activity. For every other step the time of the
// fastest rank counts.
void HangDetector::learn_step(Rank& rank, const Sample& sample) {
  if (sample.steps <= rank.steps) return;
  double seconds = sane_seconds(sample.step_seconds);
  const uint64_t count = sample.steps - rank.steps;
  const int64_t first_good = paused_ + 2;
  const bool all_good =
      rank.steps >= kWarmUpSteps &&
      sample.step >=
          first_good + static_cast<int64_t>(std::min<uint64_t>(count, kStepsRemembered)) - 1;
  if (all_good && count <= kStepsRemembered) {
    const double mean = (sample.seconds - rank.seconds) / static_cast<double>(count);
    seconds = std::max(seconds, sane_seconds(mean));
  }
  rank.steps = sample.steps;
  rank.seconds = sample.seconds;
  steps_ = std::max(steps_, sample.steps);
  if (sample.step > step_) {
    step_ = sample.step;
    patience_ = std::max(1, patience_ / 2);
    const Duration silence = std::exchange(silence_, Duration::zero());
    if (sample.steps <= kWarmUpSteps || sample.step < first_good) return;
    silences_.push_back(silence);
    if (silences_.size() > kStepsRemembered) silences_.pop_front();
    step_seconds_.push_back(seconds);
    if (step_seconds_.size() > kStepsRemembered) step_seconds_.pop_front();
  } else if (sample.step == step_ && sample.step >= first_good && !step_seconds_.empty()) {
    step_seconds_.back() = std::min(step_seconds_.back(), seconds);
  }
}

void HangDetector::learn_silence(Instant progress) {
  if (progress <= progress_) return;
  silence_ = std::max(silence_, progress - progress_);
  if (trains() && has_step_times()) longest_pause_ = std::max(longest_pause_, progress - progress_);
}

Duration HangDetector::step_time() const {
  return trains() && has_step_times() ? longest_step() : Duration::zero();
}

Duration HangDetector::usual_silence() const {
  if (!trains() || !has_step_times() || silences_.empty()) return Duration::zero();
  std::vector<Duration> sorted(silences_.begin(), silences_.end());
  const auto median = sorted.begin() + std::ssize(sorted) / 2;
  std::nth_element(sorted.begin(), median, sorted.end());
  return *median;
}

void HangDetector::forget(size_t index) {
  Rank& rank = ranks_[index];
  if (rank.ended) return;
  rank.ended = true;
  if (std::exchange(rank.halted, false)) --halted_;
  --(rank.silent ? silent_ : in_phase_[static_cast<size_t>(rank.phase)]);
}

void HangDetector::excuse(Duration time) {
  progress_ += time;
  foreground_ += time;
  halted_since_ += time;
  probed_at_ += time;
  if (proof_) *proof_ += time;
}

void HangDetector::record_progress(Instant now) {
  progress_ = std::max(progress_, now);
  foreground_ = std::max(foreground_, now);
}

bool HangDetector::double_patience() {
  if (is_silent()) return false;  // the job's owner has set the limit
  // The allowance does not grow beyond the budget of first steps: a job that completes no step
  // within this time is stuck, even if its stacks change.
  if (patience_ * allowance() >= std::max(budgets_.first_steps, 2 * allowance())) return false;
  patience_ *= 2;
  return true;
}

bool HangDetector::trains() const {
  for (size_t phase = 0; phase < kPhases; ++phase) {
    const bool training =
        phase == static_cast<size_t>(Phase::kData) || phase == static_cast<size_t>(Phase::kStep);
    if (in_phase_[phase] > 0 && !training) return false;
  }
  return true;
}

bool HangDetector::has_step_times() const {
  return steps_ >= kStepsKnown && !step_seconds_.empty();
}

Duration HangDetector::longest_step() const {
  return duration_of(*std::max_element(step_seconds_.begin(), step_seconds_.end()));
}

Duration HangDetector::allowance(Phase phase) const {
  const PhaseTimes& times = phase_times_[static_cast<size_t>(phase)];
  const auto learned = [&](Duration budget) {
    const Duration least = times.count > kPhasesLearned ? budgets_.phase_min : budget;
    return std::max(least, kPhaseMargin * times.longest);
  };
  switch (phase) {
    case Phase::kInit:
      return budgets_.init;
    case Phase::kRendezvous:
      return budgets_.rendezvous;
    case Phase::kLoad:
      return budgets_.load;
    case Phase::kCompile:
      return budgets_.compile;
    case Phase::kData:
    case Phase::kStep:
      if (!has_step_times()) return budgets_.first_steps;
      return std::max(budgets_.floor, duration_of(budgets_.steps * to_seconds(longest_step())));
    case Phase::kEval:
      return learned(budgets_.evaluation);
    case Phase::kCheckpointSave:
    case Phase::kCheckpointRestore:
      return learned(budgets_.checkpoint);
    case Phase::kShutdown:
      return budgets_.shutdown;
  }
  return budgets_.compile;
}

Duration HangDetector::allowance() const {
  Duration most = Duration::zero();
  for (size_t phase = 0; phase < kPhases; ++phase) {
    if (in_phase_[phase] > 0) most = std::max(most, allowance(static_cast<Phase>(phase)));
  }
  return most;
}

// An allowance that was doubled during short steps does not multiply the budget of a long phase.
Duration HangDetector::patience() const {
  if (is_silent()) return shows_life_ ? silence_max_ : std::max(silence_max_, budgets_.first_steps);
  const Duration once = allowance();
  return std::min(patience_ * once, std::max(budgets_.first_steps, 2 * once));
}

bool HangDetector::has_proof() const { return proof_ && *proof_ >= progress_; }

Instant HangDetector::proof_due() const {
  if (has_proof()) return *proof_;
  return halted_ > 0 ? std::max(progress_, halted_since_) + budgets_.probe : kNever;
}

Instant HangDetector::due() const { return std::min(due_by_time(), proof_due()); }

Instant HangDetector::next_probe() const {
  if (is_silent()) return kNever;
  return progress_ + (probed_at_ == progress_ ? probe_after_ : budgets_.probe);
}

void HangDetector::conclude_probe(bool proves, Instant now) {
  // A rank may be stopped long after the phase began.
  constexpr Duration kBetweenProbesMax = std::chrono::minutes(1);
  if (proves) proof_ = now;
  const Duration still = now - progress_;
  probed_at_ = progress_;
  probe_after_ = still + std::clamp(still, budgets_.probe, kBetweenProbesMax);
}

void HangDetector::withdraw_proof(Instant now) {
  proof_.reset();
  halted_since_ = now;
}

Instant HangDetector::due_by_time() const {
  if (is_silent()) return silence_max_ > Duration::zero() ? progress_ + patience() : kNever;
  const Instant still = progress_ + patience();
  if (!trains() || !has_step_times()) return still;
  const Duration step = duration_of(budgets_.steps_completed * to_seconds(longest_step()));
  return std::min(still, foreground_ + patience_ * std::max(allowance(), step));
}

bool HangDetector::completed_steps_since(Instant then, Duration news, Instant now) const {
  constexpr int kOverdue = 2;
  if (!has_step_times() || due() <= now) return false;
  const bool overdue = foreground_ + kOverdue * longest_step() + news <= now;
  return !overdue && foreground_ > then + longest_step();
}

std::string HangDetector::reason(Instant now) const {
  const double still = to_seconds(now - progress_);
  if (due_by_time() > now && proof_due() <= now) {
    return absl::StrFormat("%s; no rank has made progress for %.1f s",
                           has_proof() ? "its ranks cannot continue" : "a rank is stopped or dead",
                           still);
  }
  if (is_silent()) {
    return absl::StrFormat("no rank has written anything for %.1f s; it may take %.0f s", still,
                           to_seconds(patience()));
  }
  std::string why =
      progress_ + patience() <= now
          ? absl::StrFormat("no rank has made progress for %.1f s", still)
          : absl::StrFormat("no step was completed for %.1f s", to_seconds(now - foreground_));
  if (trains() && has_step_times())
    return absl::StrCat(why,
                        absl::StrFormat("; its steps take %.2f s", to_seconds(longest_step())));
  std::string_view phase = "STEP";
  Duration most = Duration::zero();
  for (size_t p = 0; p < kPhases; ++p) {
    const Duration allowed = allowance(static_cast<Phase>(p));
    if (in_phase_[p] > 0 && allowed > most) {
      most = allowed;
      phase = phase_name(static_cast<Phase>(p));
    }
  }
  return absl::StrCat(why, absl::StrFormat(" in phase %s, which may take %.0f s", av(phase),
                                           to_seconds(patience())));
}

}  // namespace muster::coordinator
