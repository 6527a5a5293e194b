// Copies of threads: registers and the used part of the stack, taken while ptrace stops the thread.
//
// Uses SEIZE and INTERRUPT instead of ATTACH: no SIGSTOP is sent, so a stopped program stays
// stopped, and a running one is never stopped by a signal of ours. All threads are interrupted
// first, and each is released once it is copied: a thread loses the time to copy a few pages, and
// the stops of the others overlap with it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/time.h"
#include "worker/stacks/process_map.h"
#include "worker/stacks/registers.h"

namespace muster::worker {

// Per thread: 128 frames of 2 KiB. Most stacks use a few KiB.
constexpr size_t kStackCopyBytesMax = 256 << 10;
constexpr size_t kStackCopiesBytesMax = 32 << 20;  // all threads of a process

enum class CopyResult {
  kCopied,
  kGone,           // it ended meanwhile
  kRefused,        // ptrace is not permitted, or another process traces it
  kDidNotStop,     // in D state, or it was not scheduled
  kOtherWordSize,  // a 32-bit program
};

struct ThreadCopy {
  pid_t tid = 0;
  CopyResult result = CopyResult::kGone;
  Registers registers{};
  uint64_t stack_address = 0;  // of stack's first byte
  std::vector<std::byte> stack{};
  Duration held{};  // from the observed stop to the release
};

// Copies the threads; returns one entry per thread, in their order. `map`: of the process; a copy
// ends at the end of its stack, because the memory after it may be a file's, and the thread would
// stay stopped while the file is read. Waits until `deadline` for threads that do not stop, or less
// if all remaining ones are in uninterruptible sleep. Runs in its own thread, which ends before
// this returns: its end makes the kernel release threads that never stopped.
std::vector<ThreadCopy> copy_threads(pid_t pid, std::span<const pid_t> tids, const ProcessMap& map,
                                     Instant deadline);

}  // namespace muster::worker
