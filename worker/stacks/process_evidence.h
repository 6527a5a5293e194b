// What the kernel says of a process, beside its stacks: state, who traces it, where it waits, and whether it was killed for memory.
// Reads /proc and cgroup files, which never waits for the process. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "common/rank_evidence.h"

namespace muster::worker {

// Fills process_state, tracer_pid and wait_channel of `evidence` for `pid`. `proc_root`: "/proc", or a folder like it. A thread of this
// program that holds it to read its stack is no debugger: the state is the one that it has besides, or 'S' without a channel when it is
// not let go within milliseconds.
void read_process_state(const std::string& proc_root, pid_t pid, RankEvidence& evidence);

constexpr char kCgroupRoot[] = "/sys/fs/cgroup";

// Of the control group of a process, or of one above it, whichever is the closest to its limit (of version 2, memory.high is one, too): a
// process whose group is there may stand still for long before the kernel kills anything. cgroup v2 and v1. Without a limit: zeros.
MemoryUse read_memory_use(const std::string& proc_root, const std::string& cgroup_root, pid_t pid);

// Kills for want of memory in the control group of a process, counted by the kernel since the group was made: read once
// when a rank has started and again when it has died, two figures tell whether one was in between. cgroup v2 and v1.
class OomKillCounter {
 public:
  OomKillCounter() = default;
  // Of the group that `pid` is in now. Counts nothing where there is no such file.
  static OomKillCounter of(const std::string& proc_root, const std::string& cgroup_root, pid_t pid);

  // -1: the kernel does not tell, or the group is gone.
  int64_t count() const;

 private:
  std::string path_;  // of the file with the line "oom_kill N"
};

}  // namespace muster::worker
