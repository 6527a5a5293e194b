#include "coordinator/core/sweep/judge.h"

#include <vector>

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

Measurements gemm(double value) { return {{"gemm", value, "TFLOP/s"}}; }

class JudgeTest : public testing::Test {
 protected:
  // Returns the clause about a node that measures `own`, among `others` of its kind in its sweep,
  // and `known` from other sweeps. It begins with "OUT " if the node is to be excluded.
  std::string slow(double own, const std::vector<double>& others,
                   const std::vector<double>& earlier = {}, const std::vector<double>& known = {}) {
    References swept, all;
    for (References* references : {&swept, &all}) {
      references->add("cpu", gemm(own));
      for (const double value : others) references->add("cpu", gemm(value));
      references->add("gpu", gemm(1'000));
    }
    for (const double value : known) all.add_earlier("cpu", gemm(value));
    swept.finish();
    all.finish();
    std::vector<Measurements> lists;
    for (const double value : earlier) lists.push_back(gemm(value));
    std::vector<const Measurements*> pointers;
    for (const Measurements& list : lists) pointers.push_back(&list);
    const Judgement verdict = slow_measurement("cpu", gemm(own), swept, all, pointers);
    return (verdict.excludes ? "OUT " : "") + verdict.why;
  }
};

TEST_F(JudgeTest, ANodeFarBelowItsKindIsSlow) {
  EXPECT_EQ(slow(12, {48, 49, 50, 50}),
            "OUT gemm is 12 TFLOP/s; the median of the 5 nodes of its kind is 49 TFLOP/s");
  EXPECT_EQ(slow(40, {48, 49, 50}), "") << "within the tolerance";
  EXPECT_EQ(slow(100, {48, 49, 50}), "");
}

TEST_F(JudgeTest, NodesThatDifferWidelyShowNothing) {
  EXPECT_EQ(slow(20, {10, 40, 70, 100}), "");
  EXPECT_NE(slow(20, {39, 40, 41, 40}), "");
}

TEST_F(JudgeTest, WithoutOtherNodesItsOwnResultsAreTheReference) {
  EXPECT_EQ(slow(10, {50}, {50, 50}), "") << "too few of both";
  EXPECT_EQ(slow(10, {50}, {50, 49, 51}),
            "gemm is 10 TFLOP/s; the median of 3 earlier checks of the node is 50 TFLOP/s");
  EXPECT_EQ(slow(10, {11, 10}, {50, 49, 51}), "") << "its kind counts more";
}

TEST_F(JudgeTest, OnlyThreeOthersOfTheSameSweepExclude) {
  EXPECT_EQ(slow(12, {50, 50, 50}),
            "OUT gemm is 12 TFLOP/s; the median of the 4 nodes of its kind is 50 TFLOP/s");
  EXPECT_EQ(slow(12, {50, 50}),
            "gemm is 12 TFLOP/s; the median of the 3 nodes of its kind is 50 TFLOP/s");
  EXPECT_EQ(slow(12, {50}, {}, {50, 50}),
            "gemm is 12 TFLOP/s; the median of the 4 nodes of its kind is 50 TFLOP/s");
  EXPECT_EQ(slow(12, {12, 12, 12}, {50, 50, 50}, {50, 50, 50, 50, 50}), "")
      << "those of the same sweep count more";
}

TEST_F(JudgeTest, EarlierStorageIsNoReference) {
  const Measurements slow = {{"storage_read", 0.1, "GB/s"}}, fast = {{"storage_read", 5, "GB/s"}};
  References swept, known;
  known.add("cpu", slow);
  for (int i = 0; i < 5; ++i) known.add_earlier("cpu", fast);
  known.finish();
  EXPECT_EQ(slow_measurement("cpu", slow, swept, known, std::vector(3, &fast)).why, "");
}

TEST_F(JudgeTest, TheSlowestMeasurementIsNamed) {
  const Measurements own = {{"gemm", 20, "TFLOP/s"}, {"memory", 1, "GB/s"}, {"other", 9, "x"}};
  const Measurements other = {{"gemm", 40, "TFLOP/s"}, {"memory", 10, "GB/s"}, {"other", 10, "x"}};
  References references;
  for (const Measurements* one : {&own, &other, &other}) references.add("cpu", *one);
  references.finish();
  EXPECT_EQ(slow_measurement("cpu", own, references, references, {}).why,
            "memory is 1 GB/s; the median of the 3 nodes of its kind is 10 GB/s");
}

TEST_F(JudgeTest, TheBestOfAllTriesCounts) {
  Measurements best = gemm(5);
  merge_best(best, {{"gemm", 9, "TFLOP/s"}, {"memory", 2, "GB/s"}});
  merge_best(best, {{"gemm", 7, "TFLOP/s"}, {"memory", 3, "GB/s"}});
  EXPECT_EQ(best, (Measurements{{"gemm", 9, "TFLOP/s"}, {"memory", 3, "GB/s"}}));
}

}  // namespace
}  // namespace muster::coordinator
