// Reads the stack of a thread in D state (uninterruptible sleep), which cannot be stopped.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "worker/stacks/process_map.h"
#include "worker/stacks/thread_copies.h"

namespace muster::worker {

// Returns a copy of the thread like that of a stopped thread. The stack pointer, the program
// counter and the system call's arguments come from /proc/PID/task/TID/syscall. The frame pointer
// is the first word of the stack that begins a chain of frames. The other registers stay unknown;
// unwinding functions without frame pointers seldom needs them. Returns nullopt if the kernel does
// not reveal the values or the thread runs.
std::optional<ThreadCopy> copy_blocked_thread(const std::string& proc_root, pid_t pid, pid_t tid,
                                              const ProcessMap& map);

// Returns the address of the innermost frame record (a caller's frame pointer, followed by a return
// address) in a copied stack; 0: there is none.
uint64_t find_frame_record(const ThreadCopy& thread, const ProcessMap& map);

}  // namespace muster::worker
