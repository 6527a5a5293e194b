// Kernel data about a process, beside its stacks: state, tracer, wait channel, and out-of-memory
// kills. Reads /proc and cgroup files, which never block on the process. Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "common/rank_evidence.h"

namespace muster::worker {

// Fills process_state, tracer_pid and wait_channel of `evidence` for `pid`. `proc_root`: "/proc",
// or a folder with its layout. Ignores a tracer that is a thread of this program: reports the state
// without it, or 'S' without a channel if that thread does not detach within milliseconds.
void read_process_state(const std::string& proc_root, pid_t pid, RankEvidence& evidence);

constexpr char kCgroupRoot[] = "/sys/fs/cgroup";

// Returns the memory use of the process's control group or of the ancestor closest to its limit (in
// version 2 memory.high counts as a limit): a process at that limit may stall for long before the
// kernel kills anything. cgroup v2 and v1. Returns zeros without a limit.
MemoryUse read_memory_use(const std::string& proc_root, const std::string& cgroup_root, pid_t pid);

// Counts out-of-memory kills in the control group of a process. The kernel counts since the group
// was created: two readings, after a rank's start and after its death, show whether one occurred in
// between. cgroup v2 and v1.
class OomKillCounter {
 public:
  OomKillCounter() = default;
  // Returns a counter for the current group of `pid`; it has no count if there is no such file.
  static OomKillCounter of(const std::string& proc_root, const std::string& cgroup_root, pid_t pid);

  // Returns the count; -1: not available, or the group is gone.
  int64_t count() const;
  // Returns the smallest memory limit of the group and its ancestors, in bytes; 0: none, or the
  // group is gone. Works after the process has ended.
  uint64_t limit() const;

 private:
  std::string path_;        // file with the line "oom_kill N"
  std::string limit_name_;  // "/memory.max"
  size_t root_length_ = 0;  // the part of path_ that is the hierarchy's root
};

}  // namespace muster::worker
