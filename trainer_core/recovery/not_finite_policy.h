// The policy for a step whose loss or gradient is not finite. Such a step is never applied:
// parameters, optimizer state and the number of completed steps do not change. The values of
// not_finite_policy are:
//
//   abort     the job ends
//   skip      continue with the next batch (as optax.apply_if_finite does), at most kSkipsInARowMax
//             times in a row
//   rollback  return to the newest checkpoint, or to the initial parameters, and continue with the
//             batch after the offending one (Chowdhery et al., "PaLM", 2022, section 5.1), at most
//             kRollbacksMax times to one checkpoint
//
// Every rank decides after the same all-reduce and with the same result, so ranks need not exchange
// decisions. The code uses neither a clock nor I/O.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer_core/base/train_config.h"
#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// The maximum number of skipped batches in a row. Batches that cause such values are rare, so after
// this number in a row the parameters are the cause, and other batches do not help.
constexpr int kSkipsInARowMax = 8;
// The maximum number of rollbacks to one checkpoint. If training fails after each of them, the
// checkpoint or the config is the cause.
constexpr int kRollbacksMax = 4;

// The action of a rank after a step that is not finite.
enum class NotFiniteAction { kAbort, kSkip, kRollback };

// An action and its reason.
struct NotFiniteDecision {
  NotFiniteAction action;
  std::string reason;  // text after the colon of not_finite_line()
};

// Applies the policy on one rank. The caller reports the events of the training by calling the
// functions.
class NotFiniteGuard {
 public:
  explicit NotFiniteGuard(NotFinitePolicy policy) : policy_(policy) {}

  // Returns the decision about a step that is not finite, and counts it.
  NotFiniteDecision on_not_finite();
  // Called after a completed step, and after a new checkpoint.
  void on_step() { skips_in_a_row_ = 0; }
  void on_checkpoint() { rollbacks_ = 0; }

 private:
  NotFinitePolicy policy_;
  int skips_in_a_row_ = 0;
  int rollbacks_ = 0;  // since the newest checkpoint
};

// Returns the line of rank 0 about the step, whose batch has the global samples `first` to `last`.
// `culprit` is the result of name_not_finite().
std::string not_finite_line(const StepRecord& record, std::string_view culprit, uint64_t first,
                            uint64_t last, const NotFiniteDecision& decision);

// Returns the line of rank 0 about a rollback from `failed_step` to the checkpoint of `step`. The
// samples from `first`, the checkpoint's next sample, to `last`, the end of the batch that was not
// finite, are skipped.
std::string rollback_line(int64_t step, int64_t failed_step, uint64_t first, uint64_t last);

}  // namespace muster::trainer
