#include "trainer_core/evaluation/scored_samples.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

using testing::ElementsAre;

struct Sequence {
  explicit Sequence(size_t length, bool packed)
      : tokens(length, -1), targets(length, -1), starts(packed ? length : 0), weights(length, -1) {}
  SequenceSpans spans() { return {tokens, targets, starts, weights}; }

  std::vector<int32_t> tokens, targets, starts;
  std::vector<float> weights;
};

// Requests of 2, 3 and 4 inputs.
std::vector<ScoredTokens> requests() {
  return {{{1, 2, 3}, 1}, {{4, 5, 6, 7}, 2}, {{8, 9, 10, 11, 12}, 4}};
}

TEST(ScoredLayout, PacksRequestsThatDoNotAttendToEachOther) {
  const ScoredLayout layout(requests(), 6, Samples::Kind::kPacked);
  ASSERT_EQ(layout.sequences(), 2U);
  Sequence first(6, true);
  layout.write(0, first.spans());
  EXPECT_THAT(first.tokens, ElementsAre(1, 2, 4, 5, 6, 0));
  EXPECT_THAT(first.targets, ElementsAre(2, 3, 5, 6, 7, 0));
  EXPECT_THAT(first.starts, ElementsAre(0, 0, 2, 2, 2, 5));
  EXPECT_THAT(first.weights, ElementsAre(1, 1, 1, 1, 1, 0));
  Sequence second(6, true);
  layout.write(1, second.spans());
  EXPECT_THAT(second.targets, ElementsAre(9, 10, 11, 12, 0, 0));
}

TEST(ScoredLayout, ScoresOnlyTheTargetsOfContinuations) {
  for (const auto kind : {Samples::Kind::kPacked, Samples::Kind::kDocuments}) {
    const ScoredLayout layout(requests(), 6, kind);
    std::vector<TargetScore> sums(3);
    for (uint64_t number = 0; number < layout.sequences(); ++number) {
      Sequence sequence(6, kind == Samples::Kind::kPacked);
      layout.write(number, sequence.spans());
      std::vector<TargetScore> scores;
      for (const int32_t target : sequence.targets)
        scores.push_back({static_cast<double>(-target), target != 7});
      layout.add_scores(number, scores, sums);
    }
    EXPECT_EQ(sums[0].log_probability, -3);
    EXPECT_EQ(sums[1].log_probability, -13);
    EXPECT_EQ(sums[2].log_probability, -42);
    EXPECT_TRUE(sums[0].is_greedy);
    EXPECT_FALSE(sums[1].is_greedy);
  }
}

TEST(ScoredLayout, WithoutARequestThereIsNoSequence) {
  EXPECT_EQ(ScoredLayout({}, 6, Samples::Kind::kPacked).sequences(), 0U);
  EXPECT_EQ(ScoredLayout(requests(), 4, Samples::Kind::kDocuments).sequences(), 3U);
}

}  // namespace
}  // namespace muster::trainer
