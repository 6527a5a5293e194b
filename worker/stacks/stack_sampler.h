// Samples the stacks of other processes from outside: stops every thread by ptrace, copies its
// registers and the used part of its stack, detaches, and then unwinds the copy (unwinder.h). The
// programs need not cooperate.
//
// The sampler uses separate threads for each target process, so that an unreadable process does not
// delay the others: for example a process in D state, on a file system that hangs, or held by a
// debugger. The sampler never waits beyond the deadline: the result of an unreadable process is the
// reason.
//
// If a process may not be traced, the sampler requests copies from the process itself
// (self_copies.h). If the process offers none, the result has only the data of /proc.
//
// Effects on a target: its threads stop for some tens of microseconds. A blocking system call that
// the kernel cannot restart (epoll_wait, semop, reads of inotify: signal(7)) may return EINTR, as
// after a handled signal. A stopped process (SIGSTOP) stays stopped. The kernel detaches all traced
// threads when the tracing thread ends, even if it is killed.
//
// A process that samples its own children must not wait for any child (waitid P_ALL): that call
// also returns the stops of traced children, even with WEXITED alone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "common/files/user_rights.h"
#include "common/stacks/stack_frame.h"
#include "common/time/time.h"

namespace muster::worker {

// A process to sample.
struct StackTarget {
  int32_t rank = -1;
  pid_t pid = 0;
  // pidfd of the process, borrowed during the call; -1: the caller ensures that `pid` is not reused
  // meanwhile
  int pidfd = -1;
  // Path of the file through which the process offers copies of its own threads
  // (common/stacks/self_stacks.h); empty or missing: the process offers none.
  std::string self_stacks{};
  // The user of the process, with whose rights files are opened that the process names; nullopt:
  // this process's.
  std::optional<UserIds> user{};
};

struct StackSamplerOptions {
  std::string py_spy;  // path of py-spy; empty: py-spy in PATH, if there is one
};

// Samples processes, and caches their modules' unwind tables. Use one sampler per program: two
// samplers would find their processes held by a tracer.
class StackSampler {
 public:
  explicit StackSampler(const StackSamplerOptions& options = {});
  // Waits at most a second for threads that the last sample() abandoned. A thread that is blocked
  // in the kernel, for example in a read from the memory of a process in D state, remains until the
  // program ends.
  ~StackSampler();
  StackSampler(const StackSampler&) = delete;
  StackSampler& operator=(const StackSampler&) = delete;

  // Returns one entry per target, in the order of `targets`. Blocks until `deadline` at most.
  // Thread-safe; concurrent calls for the same process wait for each other.
  StackSample sample(std::span<const StackTarget> targets, Instant deadline);

  // Makes current and later calls return at once, with the results so far. Thread-safe.
  void stop();

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;  // shared with threads that are blocked in the kernel
};

}  // namespace muster::worker
