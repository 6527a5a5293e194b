// Which process of a rank does its work: people start programs by a shell, or by env, numactl and the like.
#pragma once

#include <sys/types.h>

#include <string>

namespace muster::worker {

// From `pid` on the only child of who waits for a child and does nothing else, as a shell does for its command; `pid` itself where
// it works, has several children, or cannot be read. A program whose children work for it (data loaders) is not passed by: it does not stand in
// wait(). `proc_root`: "/proc", or a folder like it. Never waits.
pid_t working_process(const std::string& proc_root, pid_t pid);

}  // namespace muster::worker
