#include <gmock/gmock.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/paths.h"
#include "tests/unit/hanging_file.h"
#include "tests/unit/worker/shell/evidence/end_reader_fixture.h"
#include "worker/shell/evidence/shared_memory.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(EndReaderTest, EvidenceOfARankIsReadOutsideOfTheLoop) {
  const auto events = read({.kernel_log = kernel_log("python[4711]: segfault at 0"),
                            .deadline = std::chrono::seconds(20)},
                           {ended(SIGSEGV)});
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].detail, "") << "the newest line does not explain a signal";
  ASSERT_NE(events[0].evidence, nullptr);
  const EndEvidence& left = *events[0].evidence;
  EXPECT_THAT(left.rank.last_lines, SizeIs(kEvidenceLinesMax));
  EXPECT_EQ(left.rank.pid, 4711);
  EXPECT_FALSE(left.rank.page_problem.empty()) << "it never made one";
  ASSERT_THAT(left.kernel_messages, SizeIs(1));
  EXPECT_THAT(left.kernel_messages[0], testing::HasSubstr("segfault"));
}

TEST_F(EndReaderTest, TheKernelLogShowsKillsForMemory) {
  const EndReaderOptions options{
      .kernel_log = kernel_log("Out of memory: Killed process 4711 (python) total-vm:1kB, "
                               "anon-rss:307200kB, file-rss:1024kB, shmem-rss:0kB"),
      .deadline = std::chrono::seconds(20)};
  EndedRank by_us = ended(SIGKILL);
  by_us.was_killed = true;
  const auto events = read(options, {ended(SIGKILL), by_us, ended(SIGTERM)});
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[0].cause, ExitCause::kOutOfMemory);
  EXPECT_EQ(events[0].detail,
            "out of memory (no cgroup limit: the machine's memory is used up, the rank used 301 "
            "MiB)");
  EXPECT_EQ(events[1].cause, ExitCause::kUnknown);
  EXPECT_THAT(events[1].evidence->kernel_messages, IsEmpty());
  EXPECT_EQ(events[2].cause, ExitCause::kUnknown);
}

// NTP corrects the monotonic clock, but not the clock of the log.
TEST_F(EndReaderTest, AKernelLogAheadOfTheClockExplainsAnEnd) {
  const auto events = read({.kernel_log = kernel_log("Out of memory: Killed process 4711 (python)",
                                                     std::chrono::milliseconds(1900)),
                            .deadline = std::chrono::seconds(20)},
                           {ended(SIGKILL)});
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].cause, ExitCause::kOutOfMemory);
  EXPECT_THAT(events[0].evidence->kernel_messages, SizeIs(1));
}

TEST_F(EndReaderTest, AForeignPidInTheKernelLogIsNotTheRanks) {
  const auto events = read({.kernel_log = kernel_log("Out of memory: Killed process 4711 (python)"),
                            .foreign_pids = true,
                            .deadline = std::chrono::seconds(20)},
                           {ended(SIGKILL)});
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].cause, ExitCause::kUnknown);
  EXPECT_THAT(events[0].evidence->kernel_messages, SizeIs(1)) << "it may be the rank's";
}

// An error in the output explains the end, and not the newest line, which may be of another thread.
TEST_F(EndReaderTest, AnExceptionIsQuotedWithTheProgramsLine) {
  const EndReaderOptions options{.kernel_log = "/dev/null", .deadline = std::chrono::seconds(20)};
  const auto detail = [&](const std::string& output, int signal) {
    write_file(launcher.folders().log_path(kKey), output);
    EndedRank rank = ended(signal);
    if (signal == 0) rank.event.exit_code = 1;
    loop.restart();
    const auto events = read(options, {rank});
    return events.empty() ? "no event" : events[0].detail;
  };
  std::string deep;
  for (int i = 0; i < 40; ++i)
    deep += "  File \"/v/lib/python3.11/site-packages/torch/fx.py\", line 3, in run\n    run()\n";
  EXPECT_EQ(detail("Traceback (most recent call last):\n"
                   "  File \"/home/u/job/train.py\", line 31, in step\n    run()\n" +
                       deep + "ValueError: batch 7 is empty\nstep 49 loss 5.5\n",
                   0),
            "ValueError: batch 7 is empty (job/train.py:31 step)");
  EXPECT_EQ(detail("step 49 loss 5.5\n", SIGABRT), "");
  EXPECT_EQ(detail("free(): invalid pointer\nstep 49 loss 5.5\n", SIGABRT),
            "free(): invalid pointer");
  EXPECT_EQ(detail("no such shard\n", 0), "no such shard");
}

// A rank that the kernel killed for memory contains so, with the limit, in place of its last line.
TEST_F(EndReaderTest, ARankKilledForMemoryHasTheCauseOnItsLine) {
  const auto put = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder.file(path)).parent_path());
    write_file(folder.file(path), text);
  };
  put("proc/4711/cgroup", "0::/job\n");
  put("cgroup/job/memory.events", "oom_kill 1\n");
  put("cgroup/job/memory.peak", "313524224\n");
  const OomKillCounter counter =
      OomKillCounter::of(folder.file("proc"), folder.file("cgroup"), 4711);
  struct {
    const char* name;
    int signal;
    int32_t exit_code;
    bool of_program;
    bool was_killed;
    int64_t kills_before;
    const char* limit;
    const char* detail;
  } const cases[] = {
      {"killed at its limit", SIGKILL, -1, true, false, 0, "314572800\n",
       "out of memory (cgroup limit 300 MiB, used 299 MiB)"},
      {"the trainer's rank", SIGKILL, -1, false, false, 0, "314572800\n",
       "out of memory (cgroup limit 300 MiB, used 299 MiB)"},
      {"killed without a limit", SIGKILL, -1, true, false, 0, "max\n",
       "out of memory (no cgroup limit: the machine's memory is used up)"},
      {"the command of a shell", 0, 137, true, false, 0, "67108864\n",
       "out of memory (cgroup limit 64 MiB, used 299 MiB)"},
      {"a kill before its start", SIGKILL, -1, true, false, 1, "314572800\n", ""},
      {"killed by the worker", SIGKILL, -1, true, true, 0, "314572800\n", ""},
      {"another end", 0, 1, true, false, 1, "314572800\n", "line 49"},
      {"another signal", SIGSEGV, -1, true, false, 1, "314572800\n", ""},
      {"a loader of data was killed", 0, 1, true, false, 0, "314572800\n",
       "line 49; the kernel killed a process of its control group for memory (cgroup limit 300 "
       "MiB, used 299 MiB)"},
      {"a command of the trainer was killed", 0, 1, false, false, 0, "max\n",
       "line 49; the kernel killed a process of its control group for memory (no cgroup limit: the "
       "machine's memory is used up)"},
      {"an abort after such a kill", SIGABRT, -1, true, false, 0, "67108864\n",
       "the kernel killed a process of its control group for memory (cgroup limit 64 MiB, used "
       "299 MiB)"},
      {"stopped by the worker after such a kill", SIGTERM, -1, true, true, 0, "67108864\n", ""},
  };
  for (const auto& one : cases) {
    put("cgroup/job/memory.max", one.limit);
    EndedRank rank = ended(one.signal);
    rank.event.exit_code = one.exit_code;
    rank.of_program = one.of_program;
    rank.was_killed = one.was_killed;
    rank.oom_kills = counter;
    rank.oom_kills_before = one.kills_before;
    loop.restart();
    const auto events =
        read({.kernel_log = "/dev/null", .deadline = std::chrono::seconds(20)}, {rank});
    ASSERT_THAT(events, SizeIs(1)) << one.name;
    EXPECT_EQ(events[0].detail, one.detail) << one.name;
    EXPECT_EQ(events[0].cause == ExitCause::kOutOfMemory,
              std::string(one.detail).starts_with("out of memory"))
        << one.name;
    EXPECT_EQ(events[0].evidence->rank.last_lines.back(), "line 49") << one.name;
  }
}

// Signals by which the kernel reports a limit, of a program and of a shell's command.
TEST_F(EndReaderTest, LimitsThatTheKernelReportsBySignalsAreNamed) {
  const std::string bus_error = shared_memory_text(kSharedMemoryFolder);
  const std::optional<CpuTime> unknown;
  const CpuTime used_up{
      .used_s = 4.96, .used_by_children_s = 0, .soft_limit_s = 5, .hard_limit_s = 5};
  const CpuTime childs{.used_s = 0, .used_by_children_s = 5, .soft_limit_s = 5, .hard_limit_s = 5};
  const CpuTime soft{.used_s = 5, .used_by_children_s = 0, .soft_limit_s = 6, .hard_limit_s = 60};
  const CpuTime unlimited{.used_s = 5, .used_by_children_s = 0};
  struct {
    int signal;
    int32_t exit_code;
    bool of_program;
    std::optional<CpuTime> cpu_time;
    std::string detail;
  } const cases[] = {
      {SIGKILL, -1, true, used_up, "the limit of CPU time is used up (ulimit -t): 5 s"},
      {SIGKILL, -1, false, used_up, "the limit of CPU time is used up (ulimit -t): 5 s"},
      {SIGKILL, -1, true, childs, ""},
      {SIGKILL, -1, true, unlimited, ""},
      {SIGKILL, -1, true, unknown, ""},
      {0, 137, true, childs, "the limit of CPU time is used up (ulimit -t): 5 s; line 49"},
      {0, 137, true, used_up, "line 49"},
      {0, 137, false, childs, "line 49"},
      {SIGXCPU, -1, true, soft, "the limit of CPU time is used up (ulimit -t): 5 s"},
      {SIGXCPU, -1, false, unknown, "the limit of CPU time is used up (ulimit -t)"},
      {SIGXCPU, -1, true, unlimited,
       "another process sent the signal: no limit of CPU time is used up"},
      {SIGXFSZ, -1, true, unknown, "a file has reached the limit of sizes (ulimit -f)"},
      {0, 128 + SIGXFSZ, true, unknown,
       "a file has reached the limit of sizes (ulimit -f); line 49"},
      {0, 128 + SIGXFSZ, false, unknown, "line 49"},
      {SIGSYS, -1, true, unknown, "a system call is forbidden here (seccomp)"},
      {SIGBUS, -1, true, unknown, bus_error},
      {SIGBUS, -1, false, unknown, bus_error},
      {SIGSEGV, -1, true, used_up, ""},
      {SIGABRT, -1, true, used_up, ""},
  };
  for (const auto& one : cases) {
    EndedRank rank = ended(one.signal);
    rank.event.exit_code = one.exit_code;
    rank.of_program = one.of_program;
    rank.cpu_time = one.cpu_time;
    loop.restart();
    const auto events =
        read({.kernel_log = "/dev/null", .deadline = std::chrono::seconds(20)}, {rank});
    ASSERT_THAT(events, SizeIs(1));
    EXPECT_EQ(events[0].detail, one.detail) << one.signal << ", " << one.exit_code;
    EXPECT_EQ(events[0].evidence->rank.last_lines.back(), "line 49");
  }
}

// GPUs of the fake library, as the worker's watch sees them.
class EndReaderGpuTest : public EndReaderTest {
 protected:
  EndReaderGpuTest() {
    setenv("MUSTER_FAKE_NVML", folder.file("gpus").c_str(), 1);
    write_file(folder.file("gpus"), "gpu bus=1\ngpu bus=2\n");
    watch = std::make_unique<GpuWatch>(
        GpuWatchOptions{.library = bin_dir() + "/../fake_nvml/libnvidia-ml.so.1",
                        .visible = std::nullopt,
                        .interval = std::chrono::hours(1),
                        .topology_xml = {}});
    EXPECT_EQ(watch->measure(std::chrono::seconds(20)).gpus.size(), 2);
  }

  EndedRank on_gpu(int32_t gpu, int exit_code, int signal = 0) const {
    EndedRank rank = ended(signal);
    rank.event.exit_code = exit_code;
    rank.gpus = {gpu};
    rank.started = monotonic_now() - std::chrono::seconds(10);
    return rank;
  }

  EndReaderOptions options() const {
    return {.kernel_log = "/dev/null", .gpus = watch.get(), .deadline = std::chrono::seconds(20)};
  }

  std::unique_ptr<GpuWatch> watch;
};

TEST_F(EndReaderGpuTest, AnErrorOfItsGpuIsWhyARankEnded) {
  write_file(folder.file("gpus"), "gpu bus=1\ngpu bus=2 lost=1\nxid 0 31\n");
  const auto events = read(
      options(),
      {on_gpu(0, 1), on_gpu(1, 1), on_gpu(1, -1, SIGABRT), on_gpu(1, to_int(ExitCode::kDiskFull)),
       on_gpu(1, to_int(ExitCode::kBadInput)), on_gpu(0, to_int(ExitCode::kBadInput))});
  ASSERT_THAT(events, SizeIs(6));
  EXPECT_EQ(events[0].cause, ExitCause::kUnknown) << "31 is the program's own fault";
  EXPECT_EQ(events[0].detail, "line 49");
  EXPECT_EQ(events[1].cause, ExitCause::kGpuFault);
  EXPECT_EQ(events[1].detail, "GPU 1 is lost (NVML no longer finds it); line 49");
  EXPECT_THAT(events[1].evidence->kernel_messages,
              ElementsAre(testing::HasSubstr("GPU 1 is lost")));
  EXPECT_EQ(events[2].cause, ExitCause::kGpuFault);
  EXPECT_EQ(events[3].cause, ExitCause::kUnknown) << "it contains the error";
  EXPECT_EQ(events[4].cause, ExitCause::kGpuFault) << "CUDA reported no GPU";
  EXPECT_EQ(events[5].cause, ExitCause::kUnknown);
}

TEST_F(EndReaderGpuTest, AnXidThatComesAMomentLaterIsWaitedFor) {
  write_file(folder.file("gpus"), "gpu bus=1\ngpu bus=2\nxid 0 94\nxid 1 13\n");
  const auto events = read(options(), {on_gpu(0, 1), on_gpu(1, 1)});
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].detail, "GPU 0 reports Xid 94: contained memory error; line 49");
  EXPECT_EQ(events[1].cause, ExitCause::kUnknown);
}

TEST_F(EndReaderGpuTest, AHangingDriverOnlyCostsEvidence) {
  write_file(folder.file("gpus"), "hang\ngpu bus=1\ngpu bus=2\n");
  const auto events = read(options(), {on_gpu(0, 1)});
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].cause, ExitCause::kUnknown);
  write_file(folder.file("gpus"), "gpu bus=1\ngpu bus=2\n");
}

TEST_F(EndReaderTest, ALateReadIsReportedWithoutEvidence) {
  HangingFile log(launcher.folders().log_path(kKey));
  if (!log.hangs()) GTEST_SKIP() << "only root can make a file hang";
  std::vector<RankReaped> events;
  EndReader reader(loop, launcher,
                   {.kernel_log = "/dev/null", .deadline = std::chrono::milliseconds(50)},
                   [&](RankReaped event) {
                     events.push_back(std::move(event));
                     loop.stop();
                   });
  reader.read({ended(SIGKILL)});
  loop.run_for(std::chrono::seconds(20));
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].signal, SIGKILL);
  EXPECT_EQ(events[0].evidence, nullptr);
  log.release();
  loop.restart();
  loop.run_for(std::chrono::milliseconds(100));
  EXPECT_THAT(events, SizeIs(1)) << "a rank ends once";
}

}  // namespace
}  // namespace muster::worker
