#include "cli/run/save_view.h"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

const Instant kRequested = Instant() + std::chrono::hours(1);

Instant at(int seconds) { return kRequested + std::chrono::seconds(seconds); }

TEST(SaveReport, HasALineAtTheBeginAndEveryTwoSeconds) {
  SaveReport report;
  EXPECT_EQ(report.line({}, 120, at(0)), "");
  EXPECT_EQ(report.line({.total = 53 * 1024, .written = 0}, 120, at(1)),
            "saving a checkpoint, 120 steps are completed: 0.0 of 53.0 GiB written");
  EXPECT_EQ(report.line({.total = 53 * 1024, .written = 512}, 120, at(2)), "");
  EXPECT_EQ(
      report.line({.total = 53 * 1024, .written = 2048}, 120, at(3)),
      "saving a checkpoint, 120 steps are completed: 2.0 of 53.0 GiB written, about 51s left");
  EXPECT_EQ(report.line({.total = 53 * 1024, .written = 53 * 1024}, 120, at(55)),
            "saving a checkpoint, 120 steps are completed: 53.0 of 53.0 GiB written; waits until "
            "they are durable");
  EXPECT_EQ(report.line({}, 120, at(56)), "");
  EXPECT_EQ(report.line({.total = 10, .written = 1}, 1, at(56)),
            "saving a checkpoint, 1 step is completed: 1 of 10 MiB written")
      << "the next save";
}

TEST(SaveReport, APauseIsNamedWithTheLimit) {
  SaveReport report;
  const SaveProgress save{.total = 40, .written = 12};
  EXPECT_NE(report.line({.total = 40, .written = 4}, 7, at(0)), "");
  EXPECT_NE(report.line(save, 7, at(3)), "");
  EXPECT_EQ(report.line(save, 7, at(21)),
            "saving a checkpoint, 7 steps are completed: 12 of 40 MiB written, nothing for 18s; "
            "the save is given up after 2m 00s without progress");
  EXPECT_EQ(report.line({.total = 40, .written = 16}, 7, at(24)),
            "saving a checkpoint, 7 steps are completed: 16 of 40 MiB written, about 48s left");
}

TEST(SaveReport, FollowsAnUploadWithALineEveryTwoSeconds) {
  SaveReport report;
  EXPECT_NE(report.line({.total = 100, .written = 50}, 7, at(0)), "");
  EXPECT_NE(report.line({.total = 100, .written = 100}, 7, at(10)), "");
  int lines = 0;
  for (uint64_t tenth = 1; tenth <= 100; ++tenth) {
    const Instant now = at(10) + tenth * std::chrono::milliseconds(100);
    if (!report.line({.total = 100 + tenth, .written = 100 + tenth}, 7, now).empty()) ++lines;
  }
  EXPECT_EQ(lines, 5);
  // One of two ranks uploads while the other one writes.
  EXPECT_NE(report.line({.total = 400, .written = 210}, 7, at(30)), "") << "the next save";
  EXPECT_EQ(report.line({.total = 410, .written = 230}, 7, at(31)), "");
}

TEST(ReasonNotSaved, IsTheRanksOwn) {
  EXPECT_EQ(
      reason_not_saved("step 3\nrank 0: checkpoint: checkpoint of step 8 is not saved: cannot "
                       "write x: No space left on device\nstep 4\n"),
      "cannot write x: No space left on device");
  EXPECT_EQ(reason_not_saved("a\nrank 1: leaving: not all ranks that save with it have joined "
                             "within 3 s: exiting without a checkpoint of the last steps\nb"),
            "rank 1: leaving: not all ranks that save with it have joined within 3 s: exiting "
            "without a checkpoint of the last steps");
  EXPECT_EQ(reason_not_saved("completed step: 8"), std::nullopt);
}

TEST(SaveResult, IsTheCheckpointOrTheReason) {
  EXPECT_EQ(save_result(120, 120, {}), "checkpoint of step 120 saved");
  EXPECT_EQ(save_result(-1, -1, {}), "no checkpoint saved, because no step is completed");
  EXPECT_EQ(save_result(120, -1, {.saves = false}),
            "no checkpoint of step 120 saved, because enable_checkpointing is false");
  EXPECT_EQ(
      save_result(120, 100, {.reason = "No space left on device"}),
      "no checkpoint of step 120 saved, because No space left on device; the newest is that of "
      "step 100");
  const SaveProgress half{.total = 40, .written = 20};
  EXPECT_EQ(save_result(120, -1, {.was_killed = true, .save = half}),
            "no checkpoint of step 120 saved, because a second request killed the ranks with 20 of "
            "40 MiB");
  EXPECT_EQ(
      save_result(120, -1, {.leave_seconds = 30, .save = half}),
      "no checkpoint of step 120 saved, because it was not complete within --leave-seconds 30 "
      "with 20 of 40 MiB");
  EXPECT_EQ(save_result(120, -1, {}),
            "no checkpoint of step 120 saved, because the ranks made no progress for too long");
}

}  // namespace
}  // namespace muster::cli
