// Reads the stacks of one process: checks the process's identity and access rights, copies its
// threads, and unwinds their frames. Called by one thread at a time, which may block in the kernel
// as long as the process does.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/files/user_rights.h"
#include "common/stacks/stack_frame.h"
#include "common/time/time.h"
#include "worker/stacks/proc_files.h"
#include "worker/stacks/python_frames.h"
#include "worker/stacks/thread_copies.h"
#include "worker/stacks/unwinder.h"

namespace muster::worker {

class ProcessReader {
 public:
  // `user`: see StackTarget.
  ProcessReader(std::string proc_root, pid_t pid, uint64_t start_ticks, ModuleImages* images,
                const std::optional<UserIds>& user);

  // Returns the stacks. Appends the modules of the frames to `modules`; frames refer to them by
  // index. `self_stacks`: see StackTarget.
  RankStacks read(const PySpy& py_spy, const std::string& self_stacks, Instant deadline,
                  std::vector<StackModule>& modules);

 private:
  // Returns the reason why the process cannot be read, or "".
  std::string obstacle() const;
  ThreadStack describe(const ThreadCopy& copy, std::vector<StackModule>& modules);
  void add_kernel_frames(pid_t tid, ThreadStack& thread, std::vector<StackModule>& modules);
  // Requests copies of its threads from the process itself, by a signal. Called if ptrace is
  // refused. Fills `copies`, and sets `readable` if the answer includes the memory map. Returns a
  // note that explains why ptrace was refused.
  std::string request_self_stacks(const std::string& self_stacks, std::span<const pid_t> tids,
                                  Instant deadline, std::vector<ThreadCopy>& copies,
                                  bool& readable);
  std::string refusal(const std::vector<ThreadCopy>& copies) const;
  std::string ptrace_refusal() const;
  void add_python_frames(const PySpy& py_spy, Instant deadline,
                         const std::vector<StackModule>& modules, RankStacks& stacks) const;

  const std::string proc_root_;
  const pid_t pid_;
  const uint64_t start_ticks_;  // start time of the process, which identifies it together with pid_
  const std::optional<UserIds> user_;
  Unwinder unwinder_;
};

}  // namespace muster::worker
