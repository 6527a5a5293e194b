// Stacks as they are taken from processes: plain values that the worker's sampler makes, the prefix tree (stack_tree.h) joins and
// blame reads. Everything in them may come from a program that misbehaves: who makes them bounds and cleans it
// (printable text, at most the lengths below).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace muster {

constexpr size_t kStackDepthMax = 128;      // frames of a thread: the innermost ones are kept
constexpr size_t kThreadsPerRankMax = 512;  // the main thread first
constexpr size_t kFrameTextBytesMax = 512;  // a symbol of a template can have megabytes
constexpr size_t kModulePathBytesMax = 1024;

// A file with code. Two processes have the same code where the build ids are the same, wherever the files lie.
struct StackModule {
  std::string build_id;  // lower-case hex; empty: the file has none, and its path tells it apart
  std::string path;      // as the process has it mapped: "/usr/lib/libc.so.6", "[vdso]"

  friend bool operator==(const StackModule&, const StackModule&) = default;
  friend auto operator<=>(const StackModule&, const StackModule&) = default;
};

constexpr uint32_t kNoModule = std::numeric_limits<uint32_t>::max();

// One frame: a place in a module, or text where there is no such place ("train.py:31 train_step", "[jit]", "[kernel] futex_wait").
struct StackFrame {
  uint32_t module = kNoModule;  // index into the modules that come along
  uint64_t address =
      0;  // as the file's symbols count: without the load bias. Of calls, the call and not where it returns to
  std::string text;  // of frames without a module

  friend bool operator==(const StackFrame&, const StackFrame&) = default;
  friend auto operator<=>(const StackFrame&, const StackFrame&) = default;
};

struct ThreadStack {
  int32_t tid = 0;
  std::string name;  // of the thread, "main" for the process' first one
  char state = '?';  // of /proc: R S D T t Z X; '?': it was gone before it could be asked
  std::vector<StackFrame> frames;  // outermost first
  bool truncated = false;          // deeper than kStackDepthMax; the outermost frames are missing
};

// All threads of one rank's process, or why there are none.
struct RankStacks {
  int32_t rank = -1;
  int32_t pid = 0;
  std::string
      problem;  // empty: stacks were read. "held by a debugger (pid 17)", "dead", "did not answer within 2 s"
  std::vector<ThreadStack> threads;
  std::string
      note;  // what is missing though stacks were read: "no Python frames: py-spy is not installed …"
};

// What one worker read at one moment.
struct StackSample {
  std::vector<StackModule> modules;
  std::vector<RankStacks> ranks;
};

// What a place in a module is called.
struct FrameSymbol {
  std::string function;  // demangled; empty: not known
  std::string file;      // empty: no debug data
  int32_t line = 0;

  friend bool operator==(const FrameSymbol&, const FrameSymbol&) = default;
  friend auto operator<=>(const FrameSymbol&, const FrameSymbol&) = default;
};

}  // namespace muster
