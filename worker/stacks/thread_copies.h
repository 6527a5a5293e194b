// Copies of threads: registers and the used part of the stack, taken while ptrace holds the thread still.
//
// SEIZE and INTERRUPT, not ATTACH: no SIGSTOP is sent, so a program that is stopped stays so, and one that runs never is stopped by a
// signal of ours. All threads are asked first, and each is let go once it is copied: what a thread loses is a few pages of copying,
// and the others' stops overlap with it.
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

// Of one thread: 128 frames of 2 KiB. What is used of most stacks is a few KiB.
constexpr size_t kStackCopyBytesMax = 256 << 10;
constexpr size_t kStackCopiesBytesMax = 32 << 20;  // of all threads of a process

enum class CopyResult {
  kCopied,
  kGone,           // it ended meanwhile
  kRefused,        // ptrace is not permitted, or somebody else traces it
  kDidNotStop,     // in D state, or there was no processor for it
  kOtherWordSize,  // a 32-bit program
};

struct ThreadCopy {
  pid_t tid = 0;
  CopyResult result = CopyResult::kGone;
  Registers registers{};
  uint64_t stack_address = 0;  // of stack's first byte
  std::vector<std::byte> stack{};
  Duration held{};  // from when it was seen to stand to when it was let go
};

// One entry per thread, in their order. `map`: of the process; a copy ends where its stack does, because what lies behind may be a
// file's memory, for which the thread would be held until the file has been read. Waits until `deadline` for those that do not stop, and shorter where all that are left are in
// uninterruptible sleep. Runs in a thread of its own that ends before this returns: its end is what makes the kernel let
// go of threads that never stopped.
std::vector<ThreadCopy> copy_threads(pid_t pid, std::span<const pid_t> tids, const ProcessMap& map,
                                     Instant deadline);

}  // namespace muster::worker
