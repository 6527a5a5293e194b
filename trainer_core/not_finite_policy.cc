#include "trainer_core/not_finite_policy.h"

#include <absl/strings/str_cat.h>

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
        return {NotFiniteAction::kAbort, absl::StrCat("the job went back to this checkpoint ",
                                                      kRollbacksMax, " times already")};
      }
      ++rollbacks_;
      return {NotFiniteAction::kRollback, absl::StrCat("back to the newest checkpoint, number ",
                                                       rollbacks_, " of at most ", kRollbacksMax)};
  }
  MUSTER_CHECK(false) << "a policy without a case";
  return {NotFiniteAction::kAbort, ""};
}

}  // namespace muster::trainer
