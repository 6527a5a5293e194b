#include "worker/core/rank.h"

#include <limits>

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

// Returns the page of an attempt with `steps` completed steps of 1000 tokens and half a second
// each.
ProgressPage page_after(int steps) {
  ProgressPage page{};
  page.step = 100 + steps;
  page.tokens = static_cast<uint64_t>(steps) * 1000;
  page.step_seconds = 0.5;
  for (int i = 0; i < steps; ++i) page.step_times.add(0.5);
  page.last_progress_ns = 77;
  return page;
}

TEST(RankFigures, AreThoseOfThePage) {
  EXPECT_EQ(figures_from_page(page_after(0)).tokens_per_second, 0);
  const RankFigures figures = figures_from_page(page_after(1));
  EXPECT_EQ(figures.step, 101);
  EXPECT_DOUBLE_EQ(figures.tokens_per_second, 2000) << "of a resumed job's first step, too";
  EXPECT_EQ(figures.last_progress, instant_from_ns(77));
  EXPECT_EQ(figures.step_times.total(), 1U);
  EXPECT_TRUE(same_figures(figures, figures_from_page(page_after(1))));
  RankFigures more = figures;
  more.step_times.add(0.5);
  EXPECT_FALSE(same_figures(figures, more));
}

TEST(RankFigures, InvalidPageValuesAreIgnored) {
  ProgressPage page = page_after(3);
  page.step_seconds = -1;
  EXPECT_EQ(figures_from_page(page).tokens_per_second, 0);
  page.step_seconds = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(figures_from_page(page).tokens_per_second, 0);
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
