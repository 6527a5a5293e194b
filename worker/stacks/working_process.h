// Finds the process of a rank that does the work: users start programs through a shell, env,
// numactl and the like.
#pragma once

#include <sys/types.h>

#include <string>

namespace muster::worker {

// Follows the chain from `pid` through processes that only wait for their single child, as a shell
// does for its command, and returns its end. Returns `pid` itself if it works, has several
// children, or cannot be read. A program whose children work for it (data loaders) is not skipped:
// it does not block in wait(). `proc_root`: "/proc", or a folder with its layout. Never blocks.
pid_t working_process(const std::string& proc_root, pid_t pid);

}  // namespace muster::worker
