// Reads the CPU time and the limits of CPU time (ulimit -t) of a process that has ended. At the
// hard limit the kernel sends SIGKILL, which has no other trace. `ulimit -t N` sets both limits to
// N, so that SIGXCPU, the signal of the soft limit, is never sent.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace muster::worker {

struct CpuTime {
  double used_s = 0;              // by all threads of the process
  double used_by_children_s = 0;  // by the processes that it has waited for
  std::optional<int64_t> soft_limit_s{};
  std::optional<int64_t> hard_limit_s{};
};

// Returns the values of a process that may have ended but is not reaped; nullopt if there is no
// such process. `proc_root`: "/proc", or a folder with its layout. Thread-safe, does not block.
std::optional<CpuTime> read_cpu_time(const std::string& proc_root, pid_t pid);

// Returns why `signal`, SIGXCPU or SIGKILL, was sent to the process or, with `is_childs`, to one of
// its children: "the limit of CPU time is used up (ulimit -t): 5 s". Returns "" for a SIGKILL that
// the limit does not explain. `time`: nullopt if it is unknown.
std::string cpu_limit_text(const std::optional<CpuTime>& time, int32_t signal, bool is_childs);

}  // namespace muster::worker
