// Reads the kernel's data about a process: state, tracer, wait channel, and out-of-memory kills.
// Reads /proc and cgroup files, which never block on the process. Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "common/job/rank_evidence.h"

namespace muster::worker {

// Fills process_state, tracer_pid and wait_channel of `evidence` for `pid`. `proc_root`: "/proc",
// or a folder with its layout. If a thread of this program traces the process, waits some
// milliseconds until it detaches and then reports the state without a tracer; if it does not
// detach, reports the state 'S' without a wait channel.
void read_process_state(const std::string& proc_root, pid_t pid, RankEvidence& evidence);

constexpr char kCgroupRoot[] = "/sys/fs/cgroup";

// Returns the memory use and the limit of the process's control group, or of that ancestor group
// which is closest to its limit. A process at the limit may stall for long before the kernel kills
// a process. Supports cgroup v2, where memory.high counts as a limit, and v1. Returns zeros if
// there is no limit.
MemoryUse read_memory_use(const std::string& proc_root, const std::string& cgroup_root, pid_t pid);

// Counts out-of-memory kills in the control group of a process. The kernel counts since the
// creation of the group: two readings, after a rank's start and after its end, show whether a kill
// occurred in between. Supports cgroup v2 and v1.
class OomKillCounter {
 public:
  OomKillCounter() = default;
  // Returns a counter for the current group of `pid`. Its count() is -1 if the kernel has no such
  // counter.
  static OomKillCounter of(const std::string& proc_root, const std::string& cgroup_root, pid_t pid);

  // Returns the count; -1 if it is not available or the group no longer exists.
  int64_t count() const;
  // Returns the smallest memory limit of the group and its ancestors, in bytes; 0: none, or the
  // group is gone. Works after the process has ended.
  uint64_t limit() const;
  // Returns the largest memory use of the group with this limit so far, in bytes; 0: not known.
  uint64_t peak() const;
  // Returns the path of the group below the root of its hierarchy: "/jobs/7". Empty: not known.
  std::string group() const;

 private:
  struct Smallest {
    uint64_t limit = 0;
    std::string folder;
  };
  Smallest smallest() const;

  std::string path_;        // file with the line "oom_kill N"
  std::string limit_name_;  // "/memory.max"
  std::string peak_name_;   // "/memory.peak"
  size_t root_length_ = 0;  // the part of path_ that is the hierarchy's root
};

}  // namespace muster::worker
