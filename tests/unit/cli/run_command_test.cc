#include "cli/run_command.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using testing::HasSubstr;

constexpr auto kLong = std::chrono::seconds(30);

TEST(RunCommand, TakesBothStreamsTheInputAndTheEnd) {
  const auto end = run_command({"sh", "-c", "cat; echo bad >&2; exit 7"}, kLong, "good\n");
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->output, "good\n");
  EXPECT_EQ(end->errors, "bad\n");
  EXPECT_EQ(end->exit_code, 7);
  EXPECT_EQ(run_command({"sh", "-c", "kill -9 $$"}, kLong)->exit_code, 137);
}

TEST(RunCommand, MuchInputAndOutputDoNotWaitForEachOther) {
  const std::string much(3 << 20, 'x');
  EXPECT_EQ(run_command({"cat"}, kLong, much)->output, much);
}

TEST(RunCommand, AnErrorSaysWhatIsWrong) {
  EXPECT_TRUE(absl::IsNotFound(run_command({"no-such-program"}, kLong).status()));
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      run_command({"sleep", "60"}, std::chrono::milliseconds(50)).status()));
  EXPECT_THAT(
      std::string(output_of({"sh", "-c", "echo why >&2; exit 3"}, kLong).status().message()),
      HasSubstr("sh -c ended with 3: why"));
  EXPECT_TRUE(absl::IsAborted(output_of({"sh", "-c", "kill -TERM $$"}, kLong).status()))
      << "somebody ended it";
  EXPECT_EQ(*output_of({"echo", "so"}, kLong), "so\n");
}

}  // namespace
}  // namespace muster::cli
