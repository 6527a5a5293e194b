#include "cli/progress_bar.h"

#include <gtest/gtest.h>

#include "tests/unit/cli/captured_fd.h"

namespace muster::cli {
namespace {

using std::chrono::seconds;

TEST(RenderBar, FillsAndFits) {
  EXPECT_EQ(render_bar(0.5, "note", 80), "[########        ]  50%  note");
  EXPECT_EQ(render_bar(7, "", 80).substr(0, 23), "[################] 100%");
  EXPECT_EQ(render_bar(-1, "", 80).substr(0, 23), "[                ]   0%");
  EXPECT_EQ(render_bar(0.5, std::string(500, 'x'), 40).size(), 39U);
  EXPECT_EQ(render_bar(0.5, "x", 0).size(), 0U);
}

TEST(ProgressBar, OnAPipeSaysALineNowAndThen) {
  const CapturedFd pipe;
  {
    ProgressBar bar(pipe.fd(), "tokenize");
    const Instant start = instant_from_ns(1'000'000'000);
    for (int i = 0; i <= 12; ++i) bar.update(i / 12.0, "1.0MB/s", start + seconds(i));
    bar.hide();
  }
  EXPECT_EQ(pipe.text(), "tokenize: 41%, 1.0MB/s\ntokenize: 83%, 1.0MB/s\n");
}

TEST(SecondsLeft, FollowsThePace) {
  const Instant start = instant_from_ns(0);
  EXPECT_DOUBLE_EQ(seconds_left(0.25, start, start + seconds(10)), 30);
  EXPECT_DOUBLE_EQ(seconds_left(1, start, start + seconds(10)), 0);
  EXPECT_LT(seconds_left(0, start, start + seconds(10)), 0);
}

}  // namespace
}  // namespace muster::cli
