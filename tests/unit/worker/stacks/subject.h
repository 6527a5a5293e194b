// Runs the program stack_subject (subject.cc), whose stacks tests read, and finds frames in
// samples.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/stacks/stack_frame.h"
#include "common/time/time.h"
#include "tests/paths.h"
#include "worker/stacks/proc_files.h"
#include "worker/stacks/stack_sampler.h"
#include "worker/stacks/symbolizer.h"

namespace muster::worker {

inline std::string subject_program(const std::string& name = "stack_subject") {
  return bin_dir() + "/" + name;
}

class Subject {
 public:
  explicit Subject(const std::string& mode, const std::string& program = subject_program(),
                   const std::string& argument = "") {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);
      dup2(ends[1], STDOUT_FILENO);
      execl(program.c_str(), program.c_str(), mode.c_str(),
            argument.empty() ? nullptr : argument.c_str(), nullptr);
      _exit(127);
    }
    close(ends[1]);
    std::array<char, 6> word{};
    size_t size = 0;
    while (size < word.size()) {
      const ssize_t got = read(ends[0], word.data() + size, word.size() - size);
      if (got <= 0) break;
      size += static_cast<size_t>(got);
    }
    EXPECT_EQ(std::string(word.data(), size), "ready\n") << program << " " << mode;
    output_ = ends[0];
    // The program prints "ready" before it blocks; two modes never block.
    const bool stands = mode != "churn" && mode != "exec";
    for (int i = 0; stands && state() == 'R' && i < 3000; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ~Subject() {
    end();
    close(output_);
  }
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  pid_t pid() const { return pid_; }
  char state() const { return read_task_stat("/proc", pid_).value_or(TaskStat{}).state; }
  pid_t tracer() const { return read_trace_state("/proc", pid_).tracer; }

  void kill(int signo) const { ::kill(pid_, signo); }
  // Kills the program and all processes that it has started, and reaps the program.
  void end() {
    if (ended_) return;
    ended_ = true;
    ::kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = 0;
  int output_ = -1;
  bool ended_ = false;
};

template <class F>
bool eventually(F&& condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

inline Instant in_seconds(int seconds) { return monotonic_now() + std::chrono::seconds(seconds); }

// Samples all threads of one process.
inline StackSample sample_one(StackSampler& sampler, pid_t pid) {
  const StackTarget target{.rank = 3, .pid = pid};
  return sampler.sample({&target, 1}, in_seconds(30));
}

inline const ThreadStack* find_thread(const RankStacks& stacks, const std::string& name) {
  const auto found = std::ranges::find(stacks.threads, name, &ThreadStack::name);
  return found == stacks.threads.end() ? nullptr : &*found;
}

// Returns the frames' symbols, outermost first; frames without a module keep their text.
inline std::vector<FrameSymbol> symbols_of(const StackSample& sample, const ThreadStack& thread,
                                           pid_t pid) {
  // shared, because the C library's debug file, if installed, takes a second to unpack
  static Symbolizer symbolizer;
  std::vector<FrameSymbol> symbols;
  for (const StackFrame& frame : thread.frames) {
    if (frame.module == kNoModule) {
      symbols.push_back({.function = frame.text, .file = {}});
      continue;
    }
    const auto symbol = symbolizer.symbolize(sample.modules.at(frame.module), {&frame.address, 1},
                                             pid, in_seconds(30));
    symbols.push_back(symbol.ok() ? symbol->front() : FrameSymbol{});
  }
  return symbols;
}

inline std::vector<std::string> functions_of(const StackSample& sample, const ThreadStack& thread,
                                             pid_t pid) {
  std::vector<std::string> functions;
  for (const FrameSymbol& symbol : symbols_of(sample, thread, pid))
    functions.push_back(symbol.function);
  return functions;
}

// Returns the number of the line in subject.cc whose comment contains `name`; -1 if there is none.
inline int32_t subject_line(const std::string& name) {
  std::ifstream source(source_dir() + "/tests/unit/worker/stacks/subject.cc");
  int32_t number = 0;
  for (std::string line; std::getline(source, line);) {
    ++number;
    if (line.find("the line that tests expect: " + name) != std::string::npos) return number;
  }
  return -1;
}

}  // namespace muster::worker
