// The stack of a thread that waits in the kernel and cannot be stopped (D state), read while it stands there.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "worker/stacks/process_map.h"
#include "worker/stacks/thread_copies.h"

namespace muster::worker {

// As if it had been stopped, from what /proc/PID/task/TID/syscall tells: stack pointer, program counter and the call's arguments. The frame pointer is
// the first word of the stack that begins a chain of frames; the other registers are not known, which functions that are
// compiled without frame pointers seldom need. nullopt: the kernel does not tell, or the thread runs.
std::optional<ThreadCopy> copy_blocked_thread(const std::string& proc_root, pid_t pid, pid_t tid,
                                              const ProcessMap& map);

// Where in a copied stack the innermost frame record (the caller's frame pointer, a return address) lies; 0: nowhere.
uint64_t find_frame_record(const ThreadCopy& thread, const ProcessMap& map);

}  // namespace muster::worker
