#include "trainer_core/base/step_rules.h"

#include <cmath>
#include <string_view>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster::trainer {
namespace {

// The maxima of rollback_after_spikes and of max_rollbacks, above any sensible value.
constexpr int64_t kSpikesInARowMax = 1'000'000;
constexpr int64_t kRollbacksMax = 1'000'000;

absl::Status check_range(std::string_view key, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(av(key), " is ", value, ", but must be between ", min, " and ", max));
}

}  // namespace

absl::Status validate_step_rules(const TrainConfig& config) {
  const SpikeConfig& spikes = config.spikes;
  absl::Status status = check_range("skip_step_interval", spikes.interval, 1, kSpikeIntervalMax);
  if (!(spikes.scaling_factor > 0) || !std::isfinite(spikes.scaling_factor)) {
    status.Update(absl::InvalidArgumentError(absl::StrCat(
        "skip_step_scaling_factor is ", spikes.scaling_factor, ", but must be above 0")));
  }
  status.Update(check_range("rollback_after_spikes", spikes.rollback_after, 0, kSpikesInARowMax));
  status.Update(check_range("max_rollbacks", config.max_rollbacks, 1, kRollbacksMax));
  if (!status.ok() || config.enable_checkpointing) return status;
  if (config.not_finite_policy == NotFinitePolicy::kRollback) {
    return absl::InvalidArgumentError(
        "not_finite_policy is rollback, but enable_checkpointing is false: there is nothing to go "
        "back to; use skip or abort");
  }
  if (spikes.rollback_after == 0) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("rollback_after_spikes is ", spikes.rollback_after,
                   ", but enable_checkpointing is false: there is nothing to go back to; set it to "
                   "0, or use skip_step_on_spikes"));
}

}  // namespace muster::trainer
