#include "trainer_core/recovery/step_guard.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "common/text/number_text.h"
#include "trainer_core/base/check.h"

namespace muster::trainer {
namespace {

// Returns mean + factor * standard deviation, with the unbiased estimate of the latter.
double upper_bound(const std::deque<double>& values, double factor) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return mean + factor * std::sqrt(squares / std::max(n - 1, 1.0));
}

}  // namespace

std::optional<SpikeBounds> StepGuard::bounds() const {
  const auto known = static_cast<int64_t>(state_.losses.size());
  if (known + 1 < std::max<int64_t>(2, spikes_.interval / 2)) return std::nullopt;
  return SpikeBounds{upper_bound(state_.losses, spikes_.scaling_factor),
                     upper_bound(state_.grad_norms, spikes_.scaling_factor)};
}

StepDecision StepGuard::on_finite(double loss, double grad_norm) {
  skips_in_a_row_ = 0;
  if (!spikes_.detects()) return {};
  const std::optional<SpikeBounds> bounds = this->bounds();
  const bool is_spike = bounds && (loss > bounds->loss || grad_norm > bounds->grad_norm);
  if (!is_spike || spikes_.rollback_after == 0) {
    state_.losses.push_back(loss);
    state_.grad_norms.push_back(grad_norm);
    trim();
  }
  if (!is_spike) {
    spikes_in_a_row_ = 0;
    if (calm_steps_left_ > 0) --calm_steps_left_;
    return {};
  }
  StepDecision decision = on_spike();
  decision.spike = bounds;
  return decision;
}

StepDecision StepGuard::on_spike() {
  if (count_spike()) return roll_back(row_text());
  StepDecision decision{StepAction::kApply, "its update is applied"};
  if (spikes_.skip_step) {
    ++state_.skipped_updates;
    decision = {StepAction::kHoldUpdate, "its update is not applied"};
  }
  if (spikes_.rollback_after > 0) {
    absl::StrAppend(&decision.reason, "; ", row_text(), ", number ", spikes_.rollback_after,
                    " takes the job back");
  }
  return decision;
}

StepDecision StepGuard::on_not_finite() {
  switch (policy_) {
    case NotFinitePolicy::kAbort:
      return {StepAction::kAbort, "not_finite_policy is abort"};
    case NotFinitePolicy::kSkip: {
      if (count_spike()) return roll_back(row_text());
      if (skips_in_a_row_ == kSkipsInARowMax) {
        const std::string reached =
            absl::StrCat("the ", kSkipsInARowMax, " batches before it were skipped, too");
        if (spikes_.rollback_after > 0) return roll_back(reached);
        return {StepAction::kAbort, reached};
      }
      ++skips_in_a_row_;
      return {StepAction::kSkipBatch, absl::StrCat("skipped, number ", skips_in_a_row_,
                                                   " in a row of at most ", kSkipsInARowMax)};
    }
    case NotFinitePolicy::kRollback:
      return roll_back("");
  }
  MUSTER_CHECK(false) << "a policy without a case";
  return {StepAction::kAbort, ""};
}

bool StepGuard::count_spike() {
  if (spikes_.rollback_after == 0) return false;
  calm_steps_left_ = spikes_.rollback_after;
  return ++spikes_in_a_row_ >= spikes_.rollback_after;
}

std::string StepGuard::row_text() const {
  return absl::StrCat("number ", spikes_in_a_row_, " in a row");
}

StepDecision StepGuard::roll_back(const std::string& why) {
  const std::string begin = why.empty() ? "" : why + ": ";
  const int32_t before = may_have_newer_ ? 0 : state_.rollbacks;
  if (before >= max_rollbacks_) {
    return {StepAction::kAbort,
            absl::StrCat(begin, "the job has returned to this checkpoint ",
                         counted(static_cast<uint64_t>(before), "time"),
                         " already (max_rollbacks); lower the learning rate, raise max_rollbacks, "
                         "or remove the newest checkpoints to begin earlier")};
  }
  return {StepAction::kRollback, absl::StrCat(begin, "back to the newest checkpoint, rollback ",
                                              before + 1, " of at most ", max_rollbacks_)};
}

bool StepGuard::return_to(const SpikeState& restored, int64_t step) {
  resume(restored, step);
  state_.rollbacks_to = step;
  return ++state_.rollbacks <= max_rollbacks_;
}

void StepGuard::resume(const SpikeState& restored, int64_t step) {
  int32_t rollbacks = restored.rollbacks_to == step ? restored.rollbacks : 0;
  if (state_.rollbacks_to == step) rollbacks = std::max(rollbacks, state_.rollbacks);
  state_ = restored;
  state_.rollbacks = rollbacks;
  state_.rollbacks_to = rollbacks > 0 ? step : -1;
  may_have_newer_ = false;
  calm_steps_left_ = 0;
  if (!spikes_.detects()) {
    state_.losses.clear();
    state_.grad_norms.clear();
  }
  trim();
  skips_in_a_row_ = spikes_in_a_row_ = 0;
}

void StepGuard::trim() {
  const auto most = static_cast<size_t>(spikes_.interval);
  while (state_.losses.size() > most) {
    state_.losses.pop_front();
    state_.grad_norms.pop_front();
  }
}

std::string not_finite_line(const StepRecord& record, std::string_view culprit, uint64_t first,
                            uint64_t last, const StepDecision& decision) {
  const bool aborts = decision.action == StepAction::kAbort;
  return absl::StrCat(
      aborts ? "Aborting training due to NaN loss. " : "not finite: ", "Step ", record.step, ": ",
      av(culprit), " is not finite (loss ", record.loss, ", gradient norm ", record.raw_grad_norm,
      ", learning rate ", record.learning_rate, ", global samples ", first, " to ", last,
      "); the step is not applied, ",
      aborts ? "no checkpoint is made of it" : "its batch is passed over", ": ", decision.reason);
}

std::string spike_line(const StepRecord& record, uint64_t first, uint64_t last,
                       const StepDecision& decision) {
  const bool aborts = decision.action == StepAction::kAbort;
  return absl::StrCat(aborts ? "Aborting training due to loss spikes. " : "spike: ", "Step ",
                      record.step, ": loss ", record.loss, " (at most ", decision.spike->loss,
                      "), gradient norm ", record.grad_norm, " (at most ",
                      decision.spike->grad_norm, "), learning rate ", record.learning_rate,
                      ", global samples ", first, " to ", last, ": ", decision.reason);
}

std::string rollback_line(int64_t step, int64_t failed_step, std::string_view samples) {
  const std::string undone =
      step == failed_step ? "no step is undone"
                          : absl::StrCat("steps ", step, " to ", failed_step - 1, " are undone");
  return absl::StrCat("rollback: resuming with step ", step, "; ", undone, ", and ", av(samples),
                      " are not trained on again");
}

}  // namespace muster::trainer
