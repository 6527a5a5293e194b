#include "trainer_core/recovery/not_finite_policy.h"

#include <gmock/gmock.h>

namespace muster::trainer {
namespace {

using testing::HasSubstr;

TEST(NotFinitePolicy, AbortEndsTheJobAtOnce) {
  NotFiniteGuard guard(NotFinitePolicy::kAbort);
  EXPECT_EQ(guard.on_not_finite().action, NotFiniteAction::kAbort);
}

TEST(NotFinitePolicy, SkipsAreBoundedInARow) {
  NotFiniteGuard guard(NotFinitePolicy::kSkip);
  for (int round = 0; round < 3; ++round) {
    for (int i = 1; i <= kSkipsInARowMax; ++i) {
      const NotFiniteDecision decision = guard.on_not_finite();
      EXPECT_EQ(decision.action, NotFiniteAction::kSkip);
      EXPECT_THAT(decision.reason,
                  HasSubstr("number " + std::to_string(i) + " in a row of at most 8"));
    }
    guard.on_step();
  }
  for (int i = 0; i < kSkipsInARowMax; ++i) guard.on_not_finite();
  guard.on_checkpoint();  // saves the last completed step; does not affect the count of skips
  const NotFiniteDecision last = guard.on_not_finite();
  EXPECT_EQ(last.action, NotFiniteAction::kAbort);
  EXPECT_THAT(last.reason, HasSubstr("the 8 batches before it were skipped"));
}

TEST(NotFinitePolicy, RollbacksAreBoundedByCheckpoint) {
  NotFiniteGuard guard(NotFinitePolicy::kRollback);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < kRollbacksMax; ++i) {
      EXPECT_EQ(guard.on_not_finite().action, NotFiniteAction::kRollback);
      guard.on_step();  // steps that the next rollback undoes
    }
    guard.on_checkpoint();
  }
  for (int i = 0; i < kRollbacksMax; ++i) guard.on_not_finite();
  guard.on_step();
  EXPECT_EQ(guard.on_not_finite().action, NotFiniteAction::kAbort);
}

}  // namespace
}  // namespace muster::trainer
