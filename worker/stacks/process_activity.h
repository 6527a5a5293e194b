// Reads what a rank's processes do: CPU time, input and output, running threads, stopped children.
// A job that stands still is ended sooner if its processes do nothing at all.
#pragma once

#include <sys/types.h>

#include <string>

#include "common/job/rank_evidence.h"

namespace muster::worker {

// Reads the activity of `pid` and its descendants, of at most 256 processes and 4096 threads.
// Its is_known is false if anything of a process or thread could not be read, or if the tree
// exceeds these limits. Its is_asleep is true if the main thread of any process is in a system call
// with a time limit. `proc_root`: "/proc", or a folder with its layout. Thread-safe, never blocks
// on a process.
ProcessActivity read_process_activity(const std::string& proc_root, pid_t pid);

// Returns whether the process's main thread runs, waits in the kernel without being interruptible,
// or sleeps for a time. Returns false if it waits for an event, or cannot be read. Thread-safe,
// never blocks on the process.
bool is_main_thread_awake(const std::string& proc_root, pid_t pid);

}  // namespace muster::worker
