// The policy for a step whose loss or gradient is not finite. Such a step is never applied:
// parameters, optimizer state and the number of completed steps remain, and the step is computed
// from the next samples, unless the job ends.
//
//   abort     the job ends
//   skip      continue with the next batch (as optax.apply_if_finite does), at most kSkipsInARowMax
//             times in a row
//   rollback  return to the newest checkpoint, or to the initial parameters, and continue with the
//             batch after the offending one (Chowdhery et al., "PaLM", 2022, section 5.1), at most
//             kRollbacksMax times to one checkpoint
//
// Every rank decides after the same all-reduce with the same result, so no message is needed. No
// clock, no I/O.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer_core/base/train_config.h"
#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// Bad batches are rare. As many in a row come from the parameters, which no other batch repairs.
constexpr int kSkipsInARowMax = 8;
// A failure after each of these attempts comes from the checkpoint, or from the config.
constexpr int kRollbacksMax = 4;

enum class NotFiniteAction { kAbort, kSkip, kRollback };

struct NotFiniteDecision {
  NotFiniteAction action;
  std::string reason;  // completes "…: "
};

class NotFiniteGuard {
 public:
  explicit NotFiniteGuard(NotFinitePolicy policy) : policy_(policy) {}

  NotFiniteDecision on_not_finite();
  void on_step() { skips_in_a_row_ = 0; }
  void on_checkpoint() { rollbacks_ = 0; }

 private:
  NotFinitePolicy policy_;
  int skips_in_a_row_ = 0;
  int rollbacks_ = 0;  // since the newest checkpoint
};

// Returns rank 0's line about the step, whose batch is the global samples `first` to `last`.
// `culprit` is name_not_finite()'s sentence.
std::string not_finite_line(const StepRecord& record, std::string_view culprit, uint64_t first,
                            uint64_t last, const NotFiniteDecision& decision);

// Returns rank 0's line about a rollback from `failed_step` to `step`: the checkpoint's next sample
// is `first`, and the offending batch ends with `last`.
std::string rollback_line(int64_t step, int64_t failed_step, uint64_t first, uint64_t last);

}  // namespace muster::trainer
