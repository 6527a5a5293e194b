// Copies of threads that a process makes itself, because it may not be traced: threads that have offered it (common/self_stacks.h) are
// asked by a signal, and answer into a file. What it lacks against tracing: threads that have not offered it, are stopped or wait
// uninterruptibly do not answer.
//
// The file is the process', and may say anything: nothing but a real-time signal that the process handles is sent, to nobody but its
// threads, and what comes back is bounded.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/time.h"
#include "worker/stacks/process_map.h"
#include "worker/stacks/thread_copies.h"

namespace muster::worker {

struct SelfCopies {
  std::vector<ThreadCopy> copies;  // one per thread, in their order; kRefused: was not asked
  std::optional<ProcessMap> map;   // when it was wanted and came
};

// nullopt: the process offers nothing. `request`: not 0, and another one each time. Waits until `deadline` for those that do not answer.
std::optional<SelfCopies> ask_for_copies(const std::string& proc_root, const std::string& path,
                                         pid_t pid, std::span<const pid_t> tids, uint64_t request,
                                         bool wants_map, Instant deadline);

}  // namespace muster::worker
