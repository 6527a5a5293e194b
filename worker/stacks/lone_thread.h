// A detached thread for system calls that may never return, because a process or file system hangs.
#pragma once

#include <functional>

namespace muster::worker {

// Runs `body` on a new detached thread with all signals blocked. Returns false if the system lacks
// resources. Requires that `body` owns, or shares the ownership of, everything that it uses.
bool start_lone_thread(std::function<void()> body);

}  // namespace muster::worker
