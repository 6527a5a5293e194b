// Copies of threads: registers and the used part of the stack, taken while ptrace stops the thread.
//
// Uses PTRACE_SEIZE and PTRACE_INTERRUPT instead of PTRACE_ATTACH, which would send SIGSTOP: a
// stopped program stays stopped, and a running program is never stopped by a signal of ours. All
// threads are interrupted first; then each thread is copied and released. The stops of the threads
// overlap, and each takes little longer than the copying of a few pages.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/time/time.h"
#include "worker/stacks/process_map.h"
#include "worker/stacks/registers.h"

namespace muster::worker {

// Maximum copied bytes per thread, enough for 128 frames of 2 KiB. Most stacks use a few KiB.
constexpr size_t kStackCopyBytesMax = 256 << 10;
constexpr size_t kStackCopiesBytesMax = 32 << 20;  // all threads of a process

// The result of copying one thread.
enum class CopyResult {
  kCopied,
  kGone,           // the thread ended meanwhile
  kRefused,        // ptrace is not permitted, or another process traces the thread
  kDidNotStop,     // the thread is in D state, or was not scheduled
  kOtherWordSize,  // the thread runs a 32-bit program
};

// The copied registers and stack of one thread.
struct ThreadCopy {
  pid_t tid = 0;
  CopyResult result = CopyResult::kGone;
  Registers registers{};
  uint64_t stack_address = 0;  // address of the first byte of `stack`
  std::vector<std::byte> stack{};
  Duration held{};  // time from the observed stop to the release
};

// Copies the threads `tids`; returns one entry per thread, in the same order. `map`: the mappings
// of the process. They bound each copy to the stack's own mapping, because the memory after it may
// belong to a file, and the thread would stay stopped while the file is read. Waits until
// `deadline` for threads that do not stop, or less if all remaining threads are in uninterruptible
// sleep. Traces from a new thread that ends before this function returns, so that the kernel
// releases threads that never stopped.
std::vector<ThreadCopy> copy_threads(pid_t pid, std::span<const pid_t> tids, const ProcessMap& map,
                                     Instant deadline);

}  // namespace muster::worker
