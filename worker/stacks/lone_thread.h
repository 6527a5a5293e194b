// A thread that nobody joins: it may never come back from the kernel, where a process or a file system does not answer. What it uses must be its own,
// or shared.
#pragma once

#include <functional>

namespace muster::worker {

// All signals are the others'. False: the system has no room for it.
bool start_lone_thread(std::function<void()> body);

}  // namespace muster::worker
