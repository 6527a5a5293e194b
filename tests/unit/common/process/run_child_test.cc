#include "common/process/run_child.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

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

TEST(RunChild, StandardErrorIsSeenWhileItArrives) {
  ChildOptions options = in_seconds(30);
  std::string seen;
  std::vector<bool> before_the_end;
  options.errors_bytes_max = 8;
  options.on_errors = [&](std::string_view text) { seen += text; };
  options.watch = [&] {
    before_the_end.push_back(seen == "one\n");
    return true;
  };
  const auto end = run_child({"sh", "-c", "echo one >&2; sleep 1; echo two and more >&2"}, options);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->errors, "one\ntwo ");
  EXPECT_EQ(seen.substr(0, 8), end->errors);
  EXPECT_LE(seen.size(), 9U) << "the bound, and one byte that shows the excess";
  EXPECT_NE(std::find(before_the_end.begin(), before_the_end.end(), true), before_the_end.end());
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

TEST(RunChild, ASignalToOurGroupDoesNotEndAGroupOfItsOwn) {
  ChildOptions options = in_seconds(30);
  options.own_group = true;
  options.environment = {"PATH=/usr/bin:/bin", "RUN_CHILD_TEST=there"};
  const auto end = run_child({"sh", "-c",
                              "cat; read -r pid c s ppid group rest < /proc/self/stat; "
                              "test $pid = $group && echo $RUN_CHILD_TEST$HOME; exit 3"},
                             options);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->output, "there\n");
  EXPECT_EQ(end->exit_code, 3);
  EXPECT_EQ(run_child({"no-such-program"}, options).status().code(), absl::StatusCode::kNotFound);
  options.watch = [calls = 0]() mutable { return ++calls < 3; };
  EXPECT_TRUE(absl::IsCancelled(run_child({"sh", "-c", "sleep 1000; :"}, options).status()));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "no child remains";
}

// The processes of a group hold devices that the caller needs next.
TEST(RunChild, AGroupThatIsKilledIsGone) {
  const TempFolder folder;
  const std::string pid_file = folder.file("pid");
  std::atomic<bool> is_killed{false};
  ChildOptions options = in_seconds(60);
  options.own_group = true;
  options.watch = [&] { return !(is_killed = access(pid_file.c_str(), F_OK) == 0); };
  const std::string script = "sh -c 'echo $$ > " + pid_file + ".new; mv " + pid_file + ".new " +
                             pid_file + "; exec sleep 1000' >&- 2>&- & wait";
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  std::atomic<bool> is_over{false};
  // The second process ends late: it is a zombie until it is reaped.
  std::thread init([&] {
    while (!is_killed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    while (!is_over) {
      waitpid(-1, nullptr, WNOHANG);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_TRUE(absl::IsCancelled(run_child({"sh", "-c", script}, options).status()));
  pid_t second = 0;
  std::ifstream(pid_file) >> second;
  ASSERT_GT(second, 0);
  EXPECT_EQ(kill(second, 0), -1) << second;
  is_over = true;
  init.join();
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

// A killed rank must not leave a transfer that still changes the store.
TEST(RunChild, AGroupOfItsOwnEndsWithItsParent) {
  const TempFolder folder;
  const std::string started = folder.file("started");
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    ChildOptions options = in_seconds(60);
    options.own_group = true;
    (void)run_child({"sh", "-c", "touch " + started + "; exec sleep 60"}, options);
    _exit(0);
  }
  while (access(started.c_str(), F_OK) != 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  kill(parent, SIGKILL);
  EXPECT_EQ(waitpid(parent, nullptr, 0), parent);
  int status = 0;
  EXPECT_GT(waitpid(-1, &status, 0), 0) << "the orphan is ours";
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  prctl(PR_SET_CHILD_SUBREAPER, 0);
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
