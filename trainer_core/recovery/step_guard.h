// Decides what happens to a step whose loss or gradient is not finite, or is a spike.
//
// A step that is not finite is never applied: parameters, optimizer state and the number of
// completed steps do not change. The values of not_finite_policy are:
//
//   abort     the job ends
//   skip      continue with the next batch (as optax.apply_if_finite does), at most kSkipsInARowMax
//             times in a row
//   rollback  return to the newest checkpoint, or to the initial parameters, and continue with the
//             batch after the offending one (Chowdhery et al., "PaLM", 2022, section 5.1), at most
//             max_rollbacks times to one checkpoint
//
// A step is a spike if its loss or its clipped gradient norm exceeds
//
//   mean + skip_step_scaling_factor * standard deviation
//
// of the skip_step_interval steps before it, with the unbiased estimate of the deviation. This is
// the rule of MaxText and OLMo-core. No step is a spike before half of the interval, and at least
// two steps, are known. There are two reactions, which may be combined:
//
//   skip_step_on_spikes    the step is completed without its update: parameters and optimizer state
//                          do not change, and the next update has the learning rate of this one
//   rollback_after_spikes  after so many spikes in a row, a rollback as above
//
// With skip_step_on_spikes alone, spikes count for the bounds of later steps, as in MaxText: a
// permanent change of level is accepted. With rollback_after_spikes they do not: the bounds
// would otherwise exceed the level of the spikes before there are so many of them. Steps that are
// not finite never count for the bounds; with rollback_after_spikes and not_finite_policy=skip they
// count as spikes in a row.
//
// Every rank decides after the same all-reduce and with the same result, so ranks need not exchange
// decisions. The code uses neither a clock nor I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trainer_core/base/train_config.h"
#include "trainer_core/checkpoint/spike_state.h"
#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// The maximum number of skipped batches in a row. Batches that cause such values are rare, so after
// this number in a row the parameters are the cause, and other batches do not help.
constexpr int kSkipsInARowMax = 8;

// The action of a rank after the reductions of a step.
enum class StepAction {
  kApply,       // complete the step with its update
  kHoldUpdate,  // complete the step without its update
  kSkipBatch,   // do not complete the step; compute it from the next batch
  kRollback,    // the same, from the newest checkpoint
  kAbort        // end the job
};

// The maximum values of a step that is no spike.
struct SpikeBounds {
  double loss = 0;
  double grad_norm = 0;  // after clipping
};

// An action and its reason.
struct StepDecision {
  StepAction action = StepAction::kApply;
  std::string reason = {};                // the end of not_finite_line() or spike_line()
  std::optional<SpikeBounds> spike = {};  // set if the step is a spike
};

// Applies the policies on one rank. The caller reports the events of the training by calling the
// functions.
class StepGuard {
 public:
  explicit StepGuard(const TrainConfig& config)
      : policy_(config.not_finite_policy),
        spikes_(config.spikes),
        max_rollbacks_(config.max_rollbacks) {}

  // Returns the decision about a step that is not finite, and counts it.
  StepDecision on_not_finite();
  // Returns the decision about a step with these finite values, and counts it. `grad_norm` is the
  // norm after clipping.
  StepDecision on_finite(double loss, double grad_norm);
  // Called before a checkpoint in shared storage is saved, except after a rollback. The save may
  // fail.
  void on_checkpoint() { may_have_newer_ = true; }

  // Returns whether the steps since the newest one within the bounds may end in a rollback. Their
  // states must not be saved, except after the last step.
  bool in_spike() const { return spikes_in_a_row_ > 0; }
  // Returns whether a spike may continue, because there were fewer than rollback_after_spikes steps
  // within the bounds since its last one.
  bool near_spike() const { return calm_steps_left_ > 0; }
  // Returns the state that checkpoints store.
  const SpikeState& state() const { return state_; }
  // Continues with the state of the checkpoint of `step`.
  void resume(const SpikeState& restored, int64_t step);
  // The same after a rollback, which is counted. Returns false if there were too many to this
  // checkpoint: the job must end. This happens only if a newer checkpoint could not be saved.
  bool return_to(const SpikeState& restored, int64_t step);

 private:
  // Returns the bounds of the next step; nullopt while too few steps are known.
  std::optional<SpikeBounds> bounds() const;
  StepDecision on_spike();
  // Counts a spike or, with not_finite_policy=skip, a step that is not finite. Returns whether
  // there are enough of them in a row for a rollback.
  bool count_spike();
  // Returns "number 3 in a row".
  std::string row_text() const;
  // Returns the rollback, or the end of the job if there were too many. `why` precedes the reason.
  StepDecision roll_back(const std::string& why);
  // Removes the oldest values beyond skip_step_interval.
  void trim();

  NotFinitePolicy policy_;
  SpikeConfig spikes_;
  int max_rollbacks_;
  SpikeState state_;
  int skips_in_a_row_ = 0;
  int spikes_in_a_row_ = 0;      // always 0 without rollback_after_spikes
  int calm_steps_left_ = 0;      // the same
  bool may_have_newer_ = false;  // a checkpoint was saved since the last rollback, if none failed
};

// Returns the line of rank 0 about a step that is not finite, whose batch has the global samples
// `first` to `last`. `culprit` is the result of name_not_finite().
std::string not_finite_line(const StepRecord& record, std::string_view culprit, uint64_t first,
                            uint64_t last, const StepDecision& decision);

// Returns the line of rank 0 about a spike, whose batch has the global samples `first` to `last`.
// Requires decision.spike.
std::string spike_line(const StepRecord& record, uint64_t first, uint64_t last,
                       const StepDecision& decision);

// Returns the line of rank 0 about a rollback from `failed_step` to the checkpoint of `step`.
// `samples` describes the skipped samples: from the checkpoint's next one to the end of the last
// offending batch.
std::string rollback_line(int64_t step, int64_t failed_step, std::string_view samples);

}  // namespace muster::trainer
