// A detached thread for calls that may never return from the kernel (a process or file system that
// hangs). It must own or share everything that it uses.
#pragma once

#include <functional>

namespace muster::worker {

// Starts `body` on the thread with all signals blocked. Returns false if the system lacks
// resources.
bool start_lone_thread(std::function<void()> body);

}  // namespace muster::worker
