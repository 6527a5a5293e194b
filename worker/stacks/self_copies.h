// Requests copies of its threads from a process that may not be traced. Threads that have
// registered (common/stacks/self_stacks.h) receive a signal and write their copies into a file.
// There are no copies of threads that have not registered, are stopped or wait uninterruptibly;
// tracing would reach those, too.
//
// The file belongs to the process and is untrusted. Therefore the signal must be a real-time signal
// that the process handles, it is sent only to the process's threads, and the size of the answers
// is bounded.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/time/time.h"
#include "worker/stacks/process_map.h"
#include "worker/stacks/thread_copies.h"

namespace muster::worker {

// The answer of a process.
struct SelfCopies {
  // one per requested thread, in the order of the request; kRefused: the thread was not signalled
  std::vector<ThreadCopy> copies;
  std::optional<ProcessMap> map;  // the process's map, if it was requested and received
};

// Requests the copies of the threads `tids` through the file `path`, and waits for them until
// `deadline`. Returns nullopt if the process offers no copies. Requires that `request` is not 0 and
// differs from the numbers of earlier requests. `needs_map`: also request the memory map.
std::optional<SelfCopies> request_copies(const std::string& proc_root, const std::string& path,
                                         pid_t pid, std::span<const pid_t> tids, uint64_t request,
                                         bool needs_map, Instant deadline);

}  // namespace muster::worker
