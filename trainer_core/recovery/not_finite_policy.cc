#include "trainer_core/recovery/not_finite_policy.h"

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/check.h"

namespace muster::trainer {

NotFiniteDecision NotFiniteGuard::on_not_finite() {
  switch (policy_) {
    case NotFinitePolicy::kAbort:
      return {NotFiniteAction::kAbort, "not_finite_policy is abort"};
    case NotFinitePolicy::kSkip:
      if (skips_in_a_row_ == kSkipsInARowMax) {
        return {NotFiniteAction::kAbort,
                absl::StrCat("the ", kSkipsInARowMax, " batches before it were skipped, too")};
      }
      ++skips_in_a_row_;
      return {NotFiniteAction::kSkip, absl::StrCat("skipped, number ", skips_in_a_row_,
                                                   " in a row of at most ", kSkipsInARowMax)};
    case NotFinitePolicy::kRollback:
      if (rollbacks_ == kRollbacksMax) {
        return {NotFiniteAction::kAbort, absl::StrCat("the job has returned to this checkpoint ",
                                                      kRollbacksMax, " times already")};
      }
      ++rollbacks_;
      return {NotFiniteAction::kRollback, absl::StrCat("back to the newest checkpoint, number ",
                                                       rollbacks_, " of at most ", kRollbacksMax)};
  }
  MUSTER_CHECK(false) << "a policy without a case";
  return {NotFiniteAction::kAbort, ""};
}

std::string not_finite_line(const StepRecord& record, std::string_view culprit, uint64_t first,
                            uint64_t last, const NotFiniteDecision& decision) {
  const bool aborts = decision.action == NotFiniteAction::kAbort;
  return absl::StrCat(
      aborts ? "Aborting training due to NaN loss. " : "not finite: ", "Step ", record.step, ": ",
      av(culprit), " is not finite (loss ", record.loss, ", gradient norm ", record.raw_grad_norm,
      ", learning rate ", record.learning_rate, ", global samples ", first, " to ", last,
      "); the step is not applied, ",
      aborts ? "no checkpoint is made of it" : "its batch is passed over", ": ", decision.reason);
}

std::string rollback_line(int64_t step, int64_t failed_step, uint64_t first, uint64_t last) {
  const std::string undone =
      step == failed_step ? "no step is undone"
                          : absl::StrCat("steps ", step, " to ", failed_step - 1, " are undone");
  return absl::StrCat("rollback: resuming with step ", step, "; ", undone, ", and global samples ",
                      first, " to ", last, " are not trained on again");
}

}  // namespace muster::trainer
