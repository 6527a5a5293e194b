// Samples stacks of other processes from outside: stops every thread by ptrace while its registers
// and the used part of its stack are copied, detaches, and unwinds the copy (unwinder.h). Programs
// need not cooperate.
//
// Each target has its own threads, so that an unreadable one does not delay the others: a process
// in D state, one whose files lie on a file system that hangs, one that a debugger holds. Nothing
// is waited for beyond the deadline: a missing result is listed with its reason.
//
// A process that may not be traced is asked for its own copies (self_copies.h); if it offers none,
// the result holds what /proc reveals.
//
// Effects on a target: its threads stop for some tens of microseconds, and a blocking system call
// that a handled signal would interrupt may return EINTR if the kernel cannot restart it
// (epoll_wait, semop, reads of inotify: signal(7)). A stopped process (SIGSTOP) stays stopped. The
// kernel detaches all threads when the tracing thread ends, however it ends.
//
// A process that samples its own children must not wait for any child (waitid P_ALL): it also
// returns the stops of traced children, even with WEXITED alone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/stack_frame.h"
#include "common/time.h"

namespace muster::worker {

struct StackTarget {
  int32_t rank = -1;
  pid_t pid = 0;
  // of that process, borrowed during the read; -1: the caller ensures that `pid` is not reused
  // meanwhile
  int pidfd = -1;
  // File through which it offers its own stacks if it may not be traced (common/self_stacks.h);
  // empty or absent: it offers none.
  std::string self_stacks{};
};

struct StackSamplerOptions {
  std::string py_spy;  // the program; empty: the one in PATH, if any
};

class StackSampler {
 public:
  explicit StackSampler(const StackSamplerOptions& options = {});
  // Waits at most a second for readers that the last sample() abandoned. A call that the kernel
  // does not return from (a read from the memory of a process in D state) ends with the program.
  ~StackSampler();
  StackSampler(const StackSampler&) = delete;
  StackSampler& operator=(const StackSampler&) = delete;

  // Returns the stacks of all targets, one entry each, in their order, at the latest at `deadline`.
  // Blocks. Thread-safe; concurrent calls for one process wait for each other. Caches module data
  // (unwind tables) of a process for the next call. Use one sampler per program: two would find
  // their processes held by a tracer.
  StackSample sample(std::span<const StackTarget> targets, Instant deadline);

  // Makes all calls return at once from now on, with what they have. Thread-safe.
  void stop();

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;  // shared with readers that are blocked in the kernel
};

}  // namespace muster::worker
