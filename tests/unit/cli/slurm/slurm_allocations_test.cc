#include "cli/slurm/slurm_allocations.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using std::chrono::minutes;
using testing::HasSubstr;

AllocationRecord after(const AllocationRecord& before, int64_t step) {
  return with_allocation(before, {.job = "12", .step = step, .lasted = minutes(60)});
}

TEST(Allocations, WithoutProgressAreCounted) {
  AllocationRecord record = after({}, -1);
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

TEST(Allocations, OfAnotherJobResetTheRecord) {
  const AllocationRecord record =
      with_allocation({"11", 500, 4}, {.job = "12", .step = 3, .lasted = minutes(60)});
  EXPECT_EQ(record.step, 3);
  EXPECT_EQ(record.fruitless, 0);
}

TEST(Allocations, OfASilentProgramCountAsFruitlessWhenShort) {
  const Allocation quick{.job = "12", .step = -1, .lasted = minutes(1), .counts = false};
  Allocation slow = quick;
  slow.lasted = minutes(30);
  EXPECT_EQ(with_allocation({"12", -1, 1}, quick).fruitless, 2);
  EXPECT_EQ(with_allocation({"12", -1, 1}, slow).fruitless, 0);
}

TEST(Allocations, OfAProgramThatReportsStepsAreJudgedByThem) {
  const Allocation slow{.job = "12", .step = 7, .lasted = minutes(30), .counts = false};
  EXPECT_EQ(with_allocation({"12", 7, 1}, slow).fruitless, 2);
  Allocation silent = slow;
  silent.step = -1;
  EXPECT_EQ(with_allocation({"12", 7, 1}, silent).fruitless, 2);
  EXPECT_EQ(with_allocation({"12", 6, 1}, slow).fruitless, 0);
}

TEST(Allocations, AreCountedWithAndWithoutProgress) {
  AllocationRecord record;
  for (int allocation = 1; allocation <= 9; ++allocation) {
    record = after(record, allocation);
    EXPECT_EQ(record.allocations, allocation);
  }
  EXPECT_EQ(with_allocation(record, {.job = "13", .step = 1}).allocations, 1);
}

TEST(Chain, EndsByTheJobOrItsInputButNotByANodesFault) {
  for (const int code : {0, 2, 3}) {
    EXPECT_TRUE(ends_chain({code, Verdict::kJob})) << code;
    EXPECT_FALSE(ends_chain({code, Verdict::kNone})) << code;
  }
  for (const int code : {1, 4, 5, 6, 75, 126, 137}) {
    EXPECT_FALSE(ends_chain({code, Verdict::kJob})) << code << ", which a program may use, too";
    EXPECT_TRUE(ends_chain({code, Verdict::kJob, true})) << code;
  }
  EXPECT_TRUE(ends_chain({2, Verdict::kInput}));
  EXPECT_TRUE(ends_chain({75, Verdict::kAllocations}));
}

TEST(LeadAdvice, SuggestsALongerLeadWhenTheTimeIsShort) {
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
