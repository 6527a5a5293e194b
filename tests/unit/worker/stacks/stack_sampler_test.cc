// Stacks of real processes in every process state.
#include "worker/stacks/stack_sampler.h"

#include <gmock/gmock.h>
#include <sys/ptrace.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "tests/unit/temp_folder.h"
#include "tests/unit/worker/stacks/subject.h"
#include "worker/stacks/process_evidence.h"

namespace muster::worker {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

// Expects that the subject continues as before, and is not traced.
void expect_untouched(const Subject& subject, const std::string& states) {
  EXPECT_EQ(subject.tracer(), 0);
  // A thread released a moment ago is on its way back.
  EXPECT_TRUE(eventually([&] { return states.find(subject.state()) != std::string::npos; }));
}

TEST(StackSamplerTest, NestedCallsHaveNamesAndLines) {
  const Subject subject("nested");
  StackSampler sampler;
  const StackSample sample = sample_one(sampler, subject.pid());
  ASSERT_EQ(sample.ranks.size(), 1);
  const RankStacks& stacks = sample.ranks[0];
  EXPECT_EQ(stacks.problem, "");
  EXPECT_EQ(stacks.rank, 3);
  EXPECT_EQ(stacks.pid, subject.pid());
  ASSERT_EQ(stacks.threads.size(), 1);
  const ThreadStack& thread = stacks.threads[0];
  EXPECT_EQ(thread.name, "main");
  EXPECT_EQ(thread.tid, subject.pid());
  EXPECT_EQ(thread.state, 'S');
  EXPECT_FALSE(thread.truncated);

  const auto symbols = symbols_of(sample, thread, subject.pid());
  std::vector<std::string> own;
  for (const FrameSymbol& symbol : symbols) {
    if (symbol.file.find("subject.cc") == std::string::npos) continue;
    own.push_back(symbol.function);
    const std::string name = symbol.function.substr(symbol.function.rfind(':') + 1);
    const int32_t line = subject_line(name.substr(0, name.find('(')));
    EXPECT_TRUE(line < 0 || symbol.line == line) << symbol.function << " " << symbol.line;
  }
  EXPECT_THAT(own, ElementsAre("main", "subject::outermost()", "subject::middle()",
                               "subject::innermost()", "subject::wait_forever()"));
  expect_untouched(subject, "S");
}

TEST(StackSamplerTest, ThreadsInEveryKindOfWait) {
  const Subject subject("threads");
  StackSampler sampler;
  StackSample sample;
  const std::map<std::string, std::string> where = {{"main", "subject::wait_forever()"},
                                                    {"locked", "subject::wait_for_lock()"},
                                                    {"sleeper", "subject::sleep_long()"},
                                                    {"spinner", "subject::spin()"}};
  // Threads take time to reach their final position.
  EXPECT_TRUE(eventually([&] {
    sample = sample_one(sampler, subject.pid());
    return std::ranges::all_of(where, [&](const auto& entry) {
      const ThreadStack* thread = find_thread(sample.ranks[0], entry.first);
      if (thread == nullptr) return false;
      // The called function may be inlined: "load() inlined in f()".
      return std::ranges::any_of(
          functions_of(sample, *thread, subject.pid()),
          [&](const std::string& function) { return function.ends_with(entry.second); });
    });
  }));
  ASSERT_EQ(sample.ranks[0].threads.size(), 5);
  EXPECT_EQ(sample.ranks[0].threads[0].name, "main");
  EXPECT_EQ(find_thread(sample.ranks[0], "spinner")->state, 'R');
  EXPECT_EQ(find_thread(sample.ranks[0], "locked")->state, 'S');
  EXPECT_NE(find_thread(sample.ranks[0], "bad\\x1b[31m\\x0a\\x07"), nullptr)
      << "a name that a terminal would obey is written out";
  for (const ThreadStack& thread : sample.ranks[0].threads) EXPECT_FALSE(thread.truncated);
  expect_untouched(subject, "S");
}

TEST(StackSamplerTest, AStoppedProcessStaysStopped) {
  const Subject subject("threads");
  subject.kill(SIGSTOP);
  for (const pid_t tid : read_thread_ids("/proc", subject.pid(), 100)) {
    ASSERT_TRUE(
        eventually([&] { return read_task_stat("/proc", subject.pid(), tid)->state == 'T'; }));
  }
  StackSampler sampler;
  for (int i = 0; i < 20; ++i) {
    const StackSample sample = sample_one(sampler, subject.pid());
    ASSERT_EQ(sample.ranks[0].problem, "");
    ASSERT_EQ(sample.ranks[0].threads.size(), 5);
    for (const ThreadStack& thread : sample.ranks[0].threads) {
      EXPECT_EQ(thread.state, 'T');
      EXPECT_TRUE(eventually([&] {
        return read_task_stat("/proc", subject.pid(), thread.tid)->state == 'T';
      })) << thread.name;
    }
    EXPECT_EQ(subject.tracer(), 0);
  }
  subject.kill(SIGCONT);
  EXPECT_TRUE(eventually([&] { return subject.state() == 'S'; }));
}

TEST(StackSamplerTest, AProcessHeldByADebuggerIsListed) {
  const Subject subject("nested");
  std::array<int, 2> ready{};
  ASSERT_EQ(pipe(ready.data()), 0);
  const pid_t debugger = fork();
  if (debugger == 0) {
    const char byte = ptrace(PTRACE_SEIZE, subject.pid(), nullptr, nullptr) == 0 ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    while (true) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  StackSampler sampler;
  const StackSample sample = sample_one(sampler, subject.pid());
  EXPECT_THAT(sample.ranks[0].problem,
              StartsWith("held by a debugger (pid " + std::to_string(debugger)));
  EXPECT_TRUE(sample.ranks[0].threads.empty());
  EXPECT_EQ(subject.tracer(), debugger);
  kill(debugger, SIGKILL);
  waitpid(debugger, nullptr, 0);
}

TEST(StackSamplerTest, TheDeadAreListed) {
  Subject subject("nested");
  StackSampler sampler;
  ASSERT_EQ(sample_one(sampler, subject.pid()).ranks[0].problem, "");
  subject.kill(SIGKILL);
  ASSERT_TRUE(eventually([&] { return subject.state() == 'Z'; }));
  EXPECT_EQ(sample_one(sampler, subject.pid()).ranks[0].problem, "dead, not reaped yet");
  subject.end();
  EXPECT_EQ(sample_one(sampler, subject.pid()).ranks[0].problem, "dead");
}

TEST(StackSamplerTest, UninterruptibleSleepShowsTheKernelsSideAndOurs) {
  const Subject subject("vfork");
  ASSERT_TRUE(eventually([&] { return subject.state() == 'D'; }));
  StackSampler sampler;
  const StackSample sample = sample_one(sampler, subject.pid());
  EXPECT_EQ(sample.ranks[0].problem, "");
  ASSERT_EQ(sample.ranks[0].threads.size(), 1);
  const ThreadStack& thread = sample.ranks[0].threads[0];
  EXPECT_EQ(thread.state, 'D');
  EXPECT_THAT(thread.frames.back().text, StartsWith("[kernel] "));
  // The kernel reveals only the instruction and the stack of the user's side; see blocked_thread.h.
  EXPECT_THAT(functions_of(sample, thread, subject.pid()),
              IsSupersetOf({"subject::above_vfork()", "subject::wait_for_vfork()"}));
  expect_untouched(subject, "D");
}

TEST(StackSamplerTest, ThreadsThatComeAndGoAreNoTrouble) {
  const Subject subject("churn");
  StackSampler sampler;
  for (int i = 0; i < 200; ++i) {
    const StackSample sample = sample_one(sampler, subject.pid());
    ASSERT_EQ(sample.ranks[0].problem, "") << i;
    ASSERT_NE(find_thread(sample.ranks[0], "main"), nullptr) << i;
    EXPECT_EQ(subject.tracer(), 0);
    EXPECT_NE(subject.state(), 't');
    EXPECT_NE(subject.state(), 'T');
  }
  EXPECT_NE(find_thread(sample_one(sampler, subject.pid()).ranks[0], "steady"), nullptr);
}

TEST(StackSamplerTest, AProgramThatExecutesAnotherContinues) {
  const Subject subject("exec");
  StackSampler sampler;
  std::set<std::string> problems;
  for (int i = 0; i < 200; ++i) {
    problems.insert(sample_one(sampler, subject.pid()).ranks[0].problem);
    EXPECT_EQ(subject.tracer(), 0);
  }
  EXPECT_THAT(problems, Contains("")) << "some are read in one life of the program";
  for (const std::string& problem : problems) {
    EXPECT_THAT(problem, AnyOf("", "became another program while it was read",
                               "died while it was read", HasSubstr("not permitted")));
  }
  // It still executes itself: its stack moves each time.
  const auto before = read_task_stat("/proc", subject.pid());
  EXPECT_TRUE(eventually([&] {
    const auto now = read_task_stat("/proc", subject.pid());
    return now && now->stack_start != before->stack_start;
  }));
}

TEST(StackSamplerTest, ADeathInBetweenIsAResult) {
  StackSampler sampler;
  for (int i = 0; i < 30; ++i) {
    const Subject subject("many");
    std::thread killer([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(i * 100));
      subject.kill(SIGKILL);
    });
    const StackSample sample = sample_one(sampler, subject.pid());
    killer.join();
    ASSERT_EQ(sample.ranks.size(), 1);
    EXPECT_THAT(sample.ranks[0].problem,
                AnyOf("", "dead", "dead, not reaped yet", "died while it was read"));
    EXPECT_EQ(sample.ranks[0].problem.empty(), !sample.ranks[0].threads.empty());
    EXPECT_TRUE(eventually([&] { return subject.state() == 'Z'; }))
        << "nothing keeps it from dying";
  }
}

TEST(StackSamplerTest, ASamplerThatDiesLetsGo) {
  const Subject subject("threads");
  for (int i = 0; i < 20; ++i) {
    const pid_t other = fork();
    if (other == 0) {
      StackSampler sampler;
      while (true) sample_one(sampler, subject.pid());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + i));
    kill(other, SIGKILL);
    waitpid(other, nullptr, 0);
    for (const pid_t tid : read_thread_ids("/proc", subject.pid(), 100)) {
      EXPECT_TRUE(eventually([&] {
        const char state = read_task_stat("/proc", subject.pid(), tid)->state;
        return state == 'S' || state == 'R';
      }));
    }
    EXPECT_EQ(subject.tracer(), 0);
  }
}

TEST(StackSamplerTest, DeepRecursionKeepsTheInnermostFrames) {
  const Subject subject("deep");
  StackSampler sampler;
  const StackSample sample = sample_one(sampler, subject.pid());
  ASSERT_EQ(sample.ranks[0].threads.size(), 1);
  const ThreadStack& thread = sample.ranks[0].threads[0];
  EXPECT_TRUE(thread.truncated);
  EXPECT_EQ(thread.frames.size(), kStackDepthMax);
  const auto functions = functions_of(sample, thread, subject.pid());
  EXPECT_EQ(functions.front(), "subject::recurse()");
  EXPECT_THAT(functions, Contains("subject::wait_forever()"));
}

TEST(StackSamplerTest, CodeOfNoFileIsNamedAndPassedThrough) {
  const Subject subject("jit");
  StackSampler sampler;
  const StackSample sample = sample_one(sampler, subject.pid());
  ASSERT_EQ(sample.ranks[0].threads.size(), 1);
  const auto functions = functions_of(sample, sample.ranks[0].threads[0], subject.pid());
  const std::vector<std::string> expected = {"main", "subject::run_jit()", "[jit]",
                                             "subject::innermost()", "subject::wait_forever()"};
  const auto from = std::ranges::find(functions, "main");
  ASSERT_GE(functions.end() - from, std::ssize(expected));
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), from))
      << ::testing::PrintToString(functions);
}

// Unwinds by .eh_frame, or, in files without it, by frame pointers.
TEST(StackSamplerTest, StrippedBinariesUnwind) {
  for (const std::string program : {"stack_subject_stripped", "stack_subject_no_tables"}) {
    const Subject subject("nested", subject_program(program));
    StackSampler sampler;
    const StackSample sample = sample_one(sampler, subject.pid());
    ASSERT_EQ(sample.ranks[0].threads.size(), 1) << program;
    const ThreadStack& thread = sample.ranks[0].threads[0];
    EXPECT_FALSE(thread.truncated) << program;
    int own = 0;
    for (const StackFrame& frame : thread.frames) {
      if (frame.module != kNoModule &&
          sample.modules[frame.module].path == subject_program(program))
        ++own;
    }
    // _start, main, three nested functions and the one that waits.
    EXPECT_EQ(own, 6) << program;
  }
}

TEST(StackSamplerTest, AReplacedOrDeletedFileIsReadFromMemory) {
  const TempFolder folder;
  const std::string program = folder.file("subject");
  std::filesystem::copy_file(subject_program(), program);
  const Subject subject("nested", program);
  StackSampler before;
  const StackSample first = sample_one(before, subject.pid());
  std::filesystem::remove(program);
  std::filesystem::copy_file(subject_program("stack_subject_stripped"), program);

  StackSampler sampler;  // has no cached data
  const StackSample sample = sample_one(sampler, subject.pid());
  ASSERT_EQ(sample.ranks[0].threads.size(), 1);
  const ThreadStack& thread = sample.ranks[0].threads[0];
  EXPECT_FALSE(thread.truncated);
  ASSERT_EQ(thread.frames.size(), first.ranks[0].threads[0].frames.size());
  const StackModule& module = sample.modules.at(thread.frames.front().module);
  EXPECT_EQ(module.path, program + " (deleted)");
  EXPECT_EQ(module.build_id,
            first.modules.at(first.ranks[0].threads[0].frames.front().module).build_id);
  EXPECT_EQ(module.build_id.size(), 40);

  Symbolizer symbolizer;
  const uint64_t address = thread.frames.front().address;
  const auto refused = symbolizer.symbolize(module, {&address, 1}, 0, in_seconds(30));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(refused.status().message(), HasSubstr("was replaced"));
  if (geteuid() != 0) GTEST_SKIP() << "the kernel shows mapped files to root alone";
  EXPECT_THAT(functions_of(sample, thread, subject.pid()), Contains("subject::middle()"));
}

TEST(StackSamplerTest, ManyProcessesAtOnceInAnyState) {
  const Subject nested("nested");
  const Subject threads("threads");
  const Subject blocked("vfork");
  const Subject churn("churn");
  StackSampler sampler;
  const std::vector<StackTarget> targets = {{.rank = 7, .pid = nested.pid()},
                                            {.rank = 5, .pid = threads.pid()},
                                            {.rank = 6, .pid = blocked.pid()},
                                            {.rank = 1, .pid = 0},
                                            {.rank = 4, .pid = churn.pid()}};
  const StackSample sample = sampler.sample(targets, in_seconds(30));
  ASSERT_EQ(sample.ranks.size(), targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    EXPECT_EQ(sample.ranks[i].rank, targets[i].rank);
    EXPECT_EQ(sample.ranks[i].problem, targets[i].pid == 0 ? "dead" : "");
    for (const ThreadStack& thread : sample.ranks[i].threads) {
      for (const StackFrame& frame : thread.frames)
        EXPECT_TRUE(frame.module == kNoModule || frame.module < sample.modules.size());
    }
  }
  std::set<StackModule> once(sample.modules.begin(), sample.modules.end());
  EXPECT_EQ(once.size(), sample.modules.size());
}

// Concurrent dumps and periodic traces wait for each other, and neither takes the other for a
// debugger.
TEST(StackSamplerTest, ConcurrentCallsReadTheSameProcess) {
  const Subject subject("many");
  StackSampler sampler;
  std::vector<std::thread> callers;
  std::atomic<int> halted{0};
  std::atomic<bool> done{false};
  std::thread looker([&] {
    while (!done) {
      RankEvidence evidence;
      read_process_state("/proc", subject.pid(), evidence);
      if (evidence.process_state == 't' || evidence.tracer_pid != 0) ++halted;
    }
  });
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      for (int n = 0; n < 20; ++n) {
        const StackSample sample = sample_one(sampler, subject.pid());
        EXPECT_EQ(sample.ranks[0].problem, "");
        EXPECT_EQ(sample.ranks[0].threads.size(), 21);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  done = true;
  looker.join();
  EXPECT_EQ(halted, 0);
  expect_untouched(subject, "S");
}

TEST(StackSamplerTest, StopEndsRunningCalls) {
  const Subject subject("nested");
  StackSampler sampler;
  sampler.stop();
  EXPECT_EQ(sample_one(sampler, subject.pid()).ranks[0].problem, "its worker leaves");
}

// A deadline that has passed still returns an answer, and releases the processes being read.
TEST(StackSamplerTest, CallsReturnByTheDeadline) {
  const Subject subject("many");
  StackSampler sampler;
  const StackTarget target{.rank = 3, .pid = subject.pid()};
  const StackSample late = sampler.sample({&target, 1}, monotonic_now());
  ASSERT_EQ(late.ranks.size(), 1);
  EXPECT_TRUE(eventually([&] {
    return sample_one(sampler, subject.pid()).ranks[0].problem.empty();
  })) << "the late reader is done some time";
  expect_untouched(subject, "S");
}

}  // namespace
}  // namespace muster::worker
