// Finds that process of a rank which does the work, because users often start their programs
// through a shell, env, numactl and the like.
#pragma once

#include <sys/types.h>

#include <string>

namespace muster::worker {

// Follows the chain of processes from `pid`: while a process only waits for its single child, as a
// shell does for its command, continues with the child. Returns the last process of the chain;
// `pid` itself if it does not wait, has several children, or cannot be read. A program with helper
// processes (data loaders) is not skipped, because it does not block in wait(). `proc_root`:
// "/proc", or a folder with its layout. Never blocks.
pid_t working_process(const std::string& proc_root, pid_t pid);

}  // namespace muster::worker
