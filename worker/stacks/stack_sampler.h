// Stacks of other processes, read from outside: every thread is stopped by ptrace for as long as it takes to copy its registers
// and the used part of its stack, let go, and unwound from the copy (unwinder.h). Programs need not cooperate.
//
// Each target has threads of its own, so that one that cannot be read costs the others nothing: a process in D state, one whose
// files lie on a file system that does not answer, one that a debugger holds. Nothing is waited for beyond the deadline: what is not
// there then is listed with its reason.
//
// One that may not be traced is asked for copies of its own (self_copies.h); of one that knows no such thing there is what /proc says.
//
// What a target notices: its threads stand still for some tens of microseconds, and a blocking system call that a handled signal would
// interrupt may say EINTR where the kernel knows no better way (epoll_wait, semop, reads of inotify: signal(7)). One that is
// stopped (SIGSTOP) stays stopped. The kernel lets go of all threads when the thread that traces them ends, whatever it ends by.
//
// A process that samples its own children must not wait for any child (waitid P_ALL): stops of traced ones come back from it, too, even
// with WEXITED alone.
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
  int pidfd =
      -1;  // of that process, borrowed while it is read; -1: the caller knows that `pid` is not reused meanwhile
  // The file by which it tells its stacks where it may not be traced (common/self_stacks.h); empty, or not there: it does not.
  std::string self_stacks{};
};

struct StackSamplerOptions {
  std::string py_spy;  // the program; empty: the one in PATH, if any
};

class StackSampler {
 public:
  explicit StackSampler(const StackSamplerOptions& options = {});
  // Waits for readers that the last sample() gave up, for a second at most: what the kernel does not give back (a read from the memory
  // of a process in D state) ends with the program.
  ~StackSampler();
  StackSampler(const StackSampler&) = delete;
  StackSampler& operator=(const StackSampler&) = delete;

  // The stacks of all targets, one entry each and in their order, at `deadline` at the latest. Blocks; any thread, several at once: who
  // wants a process that another call reads waits for it. What is learned of a process (its modules' unwind tables) is kept for the
  // next time. A program has one sampler: two would find their processes held by a tracer.
  StackSample sample(std::span<const StackTarget> targets, Instant deadline);

  // All calls return at once from now on, with what they have. Any thread.
  void stop();

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;  // shared with readers that are blocked in the kernel
};

}  // namespace muster::worker
