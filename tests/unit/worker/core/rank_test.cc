#include "worker/core/rank.h"

#include <limits>

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

ProgressPage page_at(int64_t step, uint64_t tokens) {
  ProgressPage page{};
  page.step = step;
  page.tokens = tokens;
  page.step_seconds = 0.5;
  page.last_progress_ns = 77;
  return page;
}

TEST(RankFigures, TokensPerSecondNeedTwoSteps) {
  const RankFigures first = figures_from_page(page_at(101, 1000), {});
  EXPECT_EQ(first.tokens_per_second, 0)
      << "a resumed job's first step says nothing about tokens per step";
  const RankFigures second = figures_from_page(page_at(103, 3000), first);
  EXPECT_DOUBLE_EQ(second.tokens_per_second, 2000);
  EXPECT_EQ(second.last_progress, instant_from_ns(77));
  const RankFigures same = figures_from_page(page_at(103, 3000), second);
  EXPECT_DOUBLE_EQ(same.tokens_per_second, 2000);
  EXPECT_TRUE(same_figures(second, same));
}

TEST(RankFigures, NonsenseInAPageGivesNoNonsense) {
  ProgressPage page = page_at(std::numeric_limits<int64_t>::max(), 1);
  page.step_seconds = -1;
  RankFigures previous;
  previous.step = 0;
  EXPECT_EQ(figures_from_page(page, previous).tokens_per_second, 0);
  page = page_at(5, 10);
  previous.step = 4;
  previous.tokens = 20;
  EXPECT_EQ(figures_from_page(page, previous).tokens_per_second, 0) << "tokens went backwards";
}

TEST(RankFigures, NaNEqualsItself) {
  RankFigures figures;
  figures.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(same_figures(figures, figures));
  EXPECT_FALSE(same_figures(figures, {}));
}

TEST(RankKey, IsOrderedByJobThenAttemptThenRank) {
  const RankKey first{JobId(1), Attempt(2), Rank(9)};
  const RankKey second{JobId(2), Attempt(1), Rank(0)};
  EXPECT_LT(first, second);
  EXPECT_EQ(to_string(first), "job 1 attempt 2 rank 9");
}

}  // namespace
}  // namespace muster::worker
