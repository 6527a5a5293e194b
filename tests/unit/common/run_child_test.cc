#include "common/run_child.h"

#include <stdlib.h>
#include <sys/wait.h>

#include <gtest/gtest.h>

namespace muster {
namespace {

ChildOptions in_seconds(int seconds) {
  return {.deadline = monotonic_now() + std::chrono::seconds(seconds)};
}

TEST(RunChild, TakesBothStreamsAndTheEnd) {
  ChildOptions options = in_seconds(30);
  EXPECT_EQ(run_child({"sh", "-c", "kill -9 $$"}, options)->exit_code, 137);
  options.errors_bytes_max = 10;
  const auto end =
      run_child({"sh", "-c", "cat; echo good; echo error that is long >&2; exit 7"}, options);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->output, "good\n");
  EXPECT_EQ(end->errors, "error that");
  EXPECT_EQ(end->exit_code, 7);
}

TEST(RunChild, IsBounded) {
  ChildOptions options = in_seconds(30);
  options.output_bytes_max = 1000;
  const auto code_of = [&](const std::vector<std::string>& words) {
    return run_child(words, options).status().code();
  };
  EXPECT_EQ(code_of({"sh", "-c", "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaa; done"}),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code_of({"no-such-program"}), absl::StatusCode::kNotFound);
  EXPECT_EQ(code_of({"/nowhere/py-spy"}), absl::StatusCode::kNotFound);
  options.deadline = monotonic_now() + std::chrono::milliseconds(50);
  EXPECT_EQ(code_of({"sleep", "1000"}), absl::StatusCode::kDeadlineExceeded);
  options.deadline = monotonic_now() + std::chrono::milliseconds(300);
  EXPECT_EQ(code_of({"sh", "-c", "exec >&- 2>&-; exec sleep 1000"}),
            absl::StatusCode::kDeadlineExceeded)
      << "the child has closed its output and does not end";
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "no child remains";
}

TEST(RunChild, ASeparateChildInheritsLittleOfTheEnvironment) {
  setenv("RUN_CHILD_TEST", "here", 1);
  ChildOptions options = in_seconds(30);
  EXPECT_EQ(run_child({"sh", "-c", "echo $RUN_CHILD_TEST"}, options)->output, "here\n");
  options.apart = true;
  EXPECT_EQ(run_child({"sh", "-c", "echo $RUN_CHILD_TEST"}, options)->output, "\n");
}

TEST(RunChild, IsWatchedAndGetsAnotherEnvironment) {
  ChildOptions options = in_seconds(30);
  options.environment = {"PATH=/usr/bin:/bin", "RUN_CHILD_TEST=there"};
  EXPECT_EQ(run_child({"sh", "-c", "echo $RUN_CHILD_TEST$HOME"}, options)->output, "there\n");
  int calls = 0;
  options.watch = [&] { return ++calls < 3; };
  EXPECT_TRUE(absl::IsCancelled(run_child({"sleep", "1000"}, options).status()));
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace muster
