// Copies of threads that a process makes itself, because it may not be traced. Threads that
// registered (common/self_stacks.h) receive a signal and answer into a file. Unlike with tracing,
// threads that have not registered, are stopped or wait uninterruptibly do not answer.
//
// The file belongs to the process and is untrusted: only a real-time signal that the process
// handles is sent, only to its threads, and the answers are bounded.
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
  std::vector<ThreadCopy> copies;  // one per thread, in their order; kRefused: was not signalled
  std::optional<ProcessMap> map;   // if requested and received
};

// Returns nullopt if the process offers no copies. Requires a `request` that is not 0 and differs
// each time. Waits until `deadline` for threads that do not answer.
std::optional<SelfCopies> request_copies(const std::string& proc_root, const std::string& path,
                                         pid_t pid, std::span<const pid_t> tids, uint64_t request,
                                         bool needs_map, Instant deadline);

}  // namespace muster::worker
