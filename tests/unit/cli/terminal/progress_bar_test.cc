#include "cli/terminal/progress_bar.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "cli/terminal/terminal.h"
#include "tests/unit/cli/terminal/captured_fd.h"
#include "tests/unit/cli/terminal/pseudo_terminal.h"

namespace muster::cli {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const Progress kHalf{.label = "reading", .fraction = 0.5, .seconds_left = 90, .note = "31.0MB/s"};

TEST(RenderBar, ShowsFractionAndTime) {
  EXPECT_EQ(render_bar(kHalf, 12, 80),
            "reading [########        ]  50%  12s, 1m 30s left  31.0MB/s");
  EXPECT_EQ(render_bar({.fraction = 7}, 0, 80), "[################] 100%  0s");
  EXPECT_EQ(render_bar({.fraction = -1}, 0, 80), "[                ]   0%  0s");
  EXPECT_EQ(render_bar({.label = "writing"}, 3, 80), "writing 3s");
}

TEST(RenderBar, DropsWhatDoesNotFit) {
  EXPECT_EQ(render_bar(kHalf, 12, 56), "reading [########        ]  50%  12s, 1m 30s left");
  EXPECT_EQ(render_bar(kHalf, 12, 40), "reading  50%  12s, 1m 30s left");
  EXPECT_EQ(render_bar(kHalf, 12, 30), "re…  50%  12s, 1m 30s left");
  EXPECT_EQ(render_bar(kHalf, 12, 12), " 50%  12s,…");
  EXPECT_EQ(render_bar({.label = std::string(300, 'x'), .fraction = 0.5}, 12, 60),
            std::string(24, 'x') + "… [########        ]  50%  12s");
}

TEST(RenderBar, NeverReachesTheLastColumn) {
  const Progress wide{.label = std::string(300, 'x'),
                      .fraction = 0.5,
                      .seconds_left = 90,
                      .note = "… " + std::string(300, 'y')};
  for (int width = 0; width <= 250; ++width) {
    for (const Progress& progress : {kHalf, wide, Progress{.label = wide.label}}) {
      EXPECT_LE(columns(render_bar(progress, 12, width)),
                static_cast<size_t>(std::max(width - 1, 0)));
    }
  }
}

TEST(ProgressBar, PrintsOccasionalLinesOnAPipe) {
  const CapturedFd pipe;
  const Instant start = instant_from_ns(1'000'000'000);
  Output output(pipe.fd());
  ProgressBar bar(output, "tokenize", start);
  for (int i = 0; i <= 12; ++i) {
    const Instant now = start + seconds(i);
    bar.update({"reading", i / 12.0, seconds_left(i / 12.0, start, now), "1.0MB/s"}, now);
  }
  bar.update({.label = "writing"}, start + seconds(20));
  bar.hide();
  EXPECT_EQ(pipe.text(),
            "tokenize: reading 41%, 5s, 7s left, 1.0MB/s\n"
            "tokenize: reading 83%, 10s, 2s left, 1.0MB/s\n"
            "tokenize: writing 20s\n");
}

TEST(ProgressBar, FollowsTheTerminalsWidthBetweenUpdates) {
  const PseudoTerminal terminal(60);
  Output output(terminal.fd());
  ProgressBar bar(output, "tokenize", monotonic_now());
  bar.update(kHalf, monotonic_now());
  EXPECT_THAT(PseudoTerminal::drawn(terminal.text()).back(),
              HasSubstr("reading [########        ]  50%"));
  terminal.resize(24);
  std::string last;
  // One line may already have been in progress.
  for (int draws = 0; draws < 3; ++draws) last = PseudoTerminal::drawn(terminal.text()).back();
  EXPECT_LT(columns(last), 24U);
  EXPECT_THAT(last, HasSubstr(" 50%"));
}

TEST(ProgressBar, LeavesTheTerminalToItsOwnerWhileHidden) {
  const PseudoTerminal terminal(80);
  Output output(terminal.fd());
  ProgressBar bar(output, "", monotonic_now());
  bar.update({.label = "step 1"}, monotonic_now());
  bar.hide();
  bar.update({.label = "step 2"}, monotonic_now());
  write_text(terminal.fd(), "a line of its owner\n");
  bar.show();
  const std::string text = terminal.text();
  const auto lines = PseudoTerminal::drawn(text);
  ASSERT_THAT(lines, SizeIs(3)) << text;
  EXPECT_EQ(lines[1], "a line of its owner\n");
  EXPECT_EQ(lines[2], "step 2 0s");
}

TEST(SecondsLeft, FollowsThePace) {
  const Instant start = instant_from_ns(0);
  EXPECT_DOUBLE_EQ(seconds_left(0.25, start, start + seconds(10)), 30);
  EXPECT_DOUBLE_EQ(seconds_left(1, start, start + seconds(10)), 0);
  EXPECT_LT(seconds_left(0, start, start + seconds(10)), 0);
}

}  // namespace
}  // namespace muster::cli
