// Stacks of processes: plain values. The worker's sampler produces them, the prefix tree
// (stack_tree.h) merges them, and the coordinator's blame reads them. Their content may come from a
// misbehaving program: the sampler bounds and cleans the content (printable text, at most the
// lengths below).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace muster {

constexpr size_t kStackDepthMax = 128;      // frames per thread; the innermost are kept
constexpr size_t kThreadsPerRankMax = 512;  // the main thread first
constexpr size_t kFrameTextBytesMax = 512;  // a template's symbol can have megabytes
constexpr size_t kModulePathBytesMax = 1024;

// A file with code. Files with equal build ids have equal code, at any path.
struct StackModule {
  std::string build_id;  // lower-case hex; empty: the path identifies the file
  std::string path;      // as mapped by the process: "/usr/lib/libc.so.6", "[vdso]"

  friend bool operator==(const StackModule&, const StackModule&) = default;
  friend auto operator<=>(const StackModule&, const StackModule&) = default;
};

constexpr uint32_t kNoModule = std::numeric_limits<uint32_t>::max();

// One frame: an address in a module, or text if there is none ("train.py:31 train_step", "[jit]",
// "[kernel] futex_wait").
struct StackFrame {
  uint32_t module = kNoModule;  // index into the accompanying modules
  // address in the file's symbol table, without the load bias; for a caller's frame, the address of
  // the call instruction and not the return address
  uint64_t address = 0;
  std::string text;  // for frames without a module

  friend bool operator==(const StackFrame&, const StackFrame&) = default;
  friend auto operator<=>(const StackFrame&, const StackFrame&) = default;
};

struct ThreadStack {
  int32_t tid = 0;
  std::string name;                // thread name; "main" for the process's first thread
  char state = '?';                // from /proc: R S D T t Z X; '?': the thread had already ended
  std::vector<StackFrame> frames;  // outermost first
  bool truncated = false;          // deeper than kStackDepthMax; the outermost frames are missing
};

// All threads of one rank's process, or the reason why there are none.
struct RankStacks {
  int32_t rank = -1;
  int32_t pid = 0;
  // reason why there are no stacks: "held by a debugger (pid 17)", "dead", "did not answer within 2
  // s"; empty: stacks were read
  std::string problem;
  std::vector<ThreadStack> threads;
  // the frames that are missing although stacks were read: "no Python frames: py-spy is not
  // installed …"
  std::string note;
};

// All stacks that one worker read at one moment.
struct StackSample {
  std::vector<StackModule> modules;
  std::vector<RankStacks> ranks;
};

// The symbol of an address in a module.
struct FrameSymbol {
  std::string function;  // demangled; empty: unknown
  std::string file;      // empty: no debug data
  int32_t line = 0;

  friend bool operator==(const FrameSymbol&, const FrameSymbol&) = default;
  friend auto operator<=>(const FrameSymbol&, const FrameSymbol&) = default;
};

}  // namespace muster
