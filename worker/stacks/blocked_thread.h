// Reads the stack of a thread in D state, which cannot be stopped, while it waits in the kernel.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "worker/stacks/process_map.h"
#include "worker/stacks/thread_copies.h"

namespace muster::worker {

// Copies the thread as if it were stopped, from /proc/PID/task/TID/syscall: stack pointer, program
// counter and the call's arguments. The frame pointer is the first stack word that begins a chain
// of frames. The other registers are unknown; functions compiled without frame pointers seldom need
// them. Returns nullopt if the kernel does not reveal the values or the thread runs.
std::optional<ThreadCopy> copy_blocked_thread(const std::string& proc_root, pid_t pid, pid_t tid,
                                              const ProcessMap& map);

// Returns the address in a copied stack of the innermost frame record (the caller's frame pointer,
// a return address); 0: none.
uint64_t find_frame_record(const ThreadCopy& thread, const ProcessMap& map);

}  // namespace muster::worker
