#include "trainer_core/base/step_rules.h"

#include <absl/strings/str_cat.h>

#include "trainer_core/base/checker.h"

namespace muster::trainer {
namespace {

// The maxima of rollback_after_spikes and of max_rollbacks, above any sensible value.
constexpr int64_t kSpikesInARowMax = 1'000'000;
constexpr int64_t kRollbacksMax = 1'000'000;

}  // namespace

absl::Status validate_step_rules(const TrainConfig& config) {
  const SpikeConfig& spikes = config.spikes;
  Checker check;
  check.range("skip_step_interval", spikes.interval, 1, kSpikeIntervalMax);
  check.number("skip_step_scaling_factor", spikes.scaling_factor, spikes.scaling_factor > 0,
               "above 0");
  check.range("rollback_after_spikes", spikes.rollback_after, 0, kSpikesInARowMax);
  check.range("max_rollbacks", config.max_rollbacks, 1, kRollbacksMax);
  if (config.enable_checkpointing) return check.status();
  check.require(config.not_finite_policy != NotFinitePolicy::kRollback,
                "not_finite_policy is rollback, but enable_checkpointing is false: there is "
                "nothing to go back to; use skip or abort");
  check.require(spikes.rollback_after == 0,
                absl::StrCat("rollback_after_spikes is ", spikes.rollback_after,
                             ", but enable_checkpointing is false: there is nothing to go back to; "
                             "set it to 0, or use skip_step_on_spikes"));
  return check.status();
}

}  // namespace muster::trainer
