// What becomes of a step whose loss or gradient is not finite. It is never applied: parameters, optimizer state and the number of
// completed steps stay, and the same step is made from the samples after it, unless the job is to end.
//
//   abort     the job ends
//   skip      on with the next batch (optax.apply_if_finite does the same), at most kSkipsInARowMax times in a row
//   rollback  back to the newest checkpoint, or to the initial parameters, and on with the batch after the offending one
//             (Chowdhery et al., "PaLM", 2022, section 5.1), at most kRollbacksMax times to one checkpoint
//
// Every rank asks after the same all-reduce and is answered the same, so that no message is needed. No clock, no I/O.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trainer_core/base/train_config.h"
#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// A bad batch is rare. As many in a row come of the parameters, which no other batch will mend.
constexpr int kSkipsInARowMax = 8;
// What fails after each of these attempts fails because of the checkpoint, or of the config.
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
  int rollbacks_ = 0;  // to the newest checkpoint
};

// What rank 0 says of the step, whose batch is the global samples `first` to `last`; `culprit` as name_not_finite has it.
std::string not_finite_line(const StepRecord& record, std::string_view culprit, uint64_t first,
                            uint64_t last, const NotFiniteDecision& decision);

// What a rollback from `failed_step` to `step` costs: the checkpoint's next sample was `first`; the offending batch ended with
// `last`.
std::string rollback_line(int64_t step, int64_t failed_step, uint64_t first, uint64_t last);

}  // namespace muster::trainer
