#include "cli/slurm/slurm_turns.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using std::chrono::minutes;
using testing::HasSubstr;

TurnRecord after(const TurnRecord& before, int64_t step) {
  return with_turn(before, {.job = "12", .step = step, .lasted = minutes(60)});
}

TEST(Turns, ThatComeNoFurtherAreCounted) {
  TurnRecord record = after({}, -1);
  EXPECT_EQ(record.job, "12");
  EXPECT_EQ(record.fruitless, 1);
  record = after(record, 40);
  EXPECT_EQ(record.fruitless, 0);
  record = after(record, 40);
  record = after(record, 35);  // one that started from an older checkpoint
  EXPECT_EQ(record.fruitless, 2);
  EXPECT_EQ(record.step, 40);
  EXPECT_EQ(after(record, 41).fruitless, 0);
}

TEST(Turns, OfAnotherJobBeginAnew) {
  const TurnRecord record =
      with_turn({"11", 500, 4}, {.job = "12", .step = 3, .lasted = minutes(60)});
  EXPECT_EQ(record.step, 3);
  EXPECT_EQ(record.fruitless, 0);
}

TEST(Turns, OfAProgramThatTellsNothingAreFruitlessWhenTheyAreShort) {
  const Turn quick{.job = "12", .step = -1, .lasted = minutes(1), .counts = false};
  Turn slow = quick;
  slow.lasted = minutes(30);
  EXPECT_EQ(with_turn({"12", -1, 1}, quick).fruitless, 2);
  EXPECT_EQ(with_turn({"12", -1, 1}, slow).fruitless, 0);
}

TEST(Turns, OfAProgramThatTellsStepsAreJudgedByThem) {
  const Turn slow{.job = "12", .step = 7, .lasted = minutes(30), .counts = false};
  EXPECT_EQ(with_turn({"12", 7, 1}, slow).fruitless, 2);
  Turn silent = slow;
  silent.step = -1;
  EXPECT_EQ(with_turn({"12", 7, 1}, silent).fruitless, 2);
  EXPECT_EQ(with_turn({"12", 6, 1}, slow).fruitless, 0);
}

TEST(Turns, AreCountedWhateverTheyBring) {
  TurnRecord record;
  for (int turn = 1; turn <= 9; ++turn) {
    record = after(record, turn);
    EXPECT_EQ(record.turns, turn);
  }
  EXPECT_EQ(with_turn(record, {.job = "13", .step = 1}).turns, 1);
}

TEST(Chain, EndsByTheJobAndItsInputAndNotByWhatANodeLacks) {
  for (const int code : {0, 2, 3}) {
    EXPECT_TRUE(ends_chain({code, Verdict::kOfTheJob})) << code;
    EXPECT_FALSE(ends_chain({code, Verdict::kNone})) << code;
  }
  for (const int code : {1, 4, 75, 126, 137})
    EXPECT_FALSE(ends_chain({code, Verdict::kOfTheJob})) << code;
  EXPECT_TRUE(ends_chain({2, Verdict::kOfTheInput}));
  EXPECT_TRUE(ends_chain({75, Verdict::kOfItsTurns}));
}

TEST(LeadAdvice, SaysWhatIsSensibleWhereTheTimeIsShort) {
  EXPECT_EQ(lead_advice(300, 150, true), "");
  EXPECT_THAT(lead_advice(300, 151, true), HasSubstr("took 151 s of the 300 s"));
  EXPECT_THAT(lead_advice(300, 151, true), HasSubstr("--signal=B:USR1@360 "));
  // The time that the save would have taken is unknown.
  EXPECT_THAT(lead_advice(60, 61, false), HasSubstr("--signal=B:USR1@180 "));
  EXPECT_THAT(lead_advice(0, 1, false), HasSubstr("--signal=B:USR1@60 "));
  EXPECT_THAT(lead_advice(60'000, 60'001, false), HasSubstr("--signal-seconds 65535 "));
}

}  // namespace
}  // namespace muster::cli
