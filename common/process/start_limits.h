// Limits that may stop a program's start: of threads (pids.max, ulimit -u), of address space and
// private memory (ulimit -v, -d), of stacks (ulimit -s), of open files (ulimit -n) and of the size
// of files (ulimit -f).
// Libraries abort on them without a name or a value; a check at the start reports both, and what is
// needed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <absl/status/status.h>

#include "common/process/control_groups.h"

namespace muster {

// The least stack of a thread, which ulimit -s sets. The compilation of tokenizers' regular
// expressions uses the most of it, some 100 KiB.
constexpr uint64_t kStackBytesMin = uint64_t{256} << 10;

// The least amounts without which a program does not start. 0: not checked.
struct StartNeeds {
  uint64_t threads = 0;        // beside the running ones
  uint64_t open_files = 0;     // in all
  uint64_t address_bytes = 0;  // beside what is mapped
  uint64_t data_bytes = 0;     // private memory, without mapped files
  uint64_t file_bytes = 0;     // the largest file that is written
  uint64_t stack_bytes = kStackBytesMin;
};

// The private memory that counts for ulimit -d: the stacks of threads, 8 MiB each, and the heap.
constexpr uint64_t kDaemonDataBytes = uint64_t{256} << 20;
// The address space of a daemon beside what its program maps: its threads' stacks and heaps.
constexpr uint64_t kDaemonAddressBytes = uint64_t{576} << 20;
// The state of a small job, its logs and its progress pages.
constexpr uint64_t kDaemonFileBytes = uint64_t{1} << 20;
// The threads, files and address space of an idle daemon without a device, as observed. The
// coordinator reports files that are too small as a full disk, by its exit code.
constexpr StartNeeds kCoordinatorNeeds = {.threads = 15,
                                          .open_files = 40,
                                          .address_bytes = kDaemonAddressBytes,
                                          .data_bytes = kDaemonDataBytes};
constexpr StartNeeds kWorkerNeeds = {.threads = 20,
                                     .open_files = 32,
                                     .address_bytes = kDaemonAddressBytes,
                                     .data_bytes = kDaemonDataBytes,
                                     .file_bytes = kDaemonFileBytes};
// `muster run` itself, beside the daemons that it starts.
constexpr StartNeeds kRunNeeds = {.threads = 11,
                                  .open_files = 32,
                                  .address_bytes = kDaemonAddressBytes,
                                  .data_bytes = kDaemonDataBytes,
                                  .file_bytes = kDaemonFileBytes};

// The limits of the shell that started this process.
struct ShellLimits {
  static constexpr uint64_t kNone = ~uint64_t{0};
  uint64_t address_bytes = kNone;  // ulimit -v
  uint64_t data_bytes = kNone;     // ulimit -d
  uint64_t file_bytes = kNone;     // ulimit -f
  uint64_t open_files = kNone;     // ulimit -n
  uint64_t processes = kNone;      // ulimit -u
  uint64_t stack_bytes = kNone;    // ulimit -s
};

// Returns this process's limits.
ShellLimits shell_limits();

// Returns ResourceExhausted that names the limit which does not allow `needs`, its value, what is
// needed and what to do; the first of pids.max, ulimit -n, -s, -f, -d and -v. ulimit -u is not
// compared: it does not bind privileged users.
absl::Status check_limits(std::string_view program, const StartNeeds& needs,
                          const ShellLimits& limits, const MachineRoots& roots = {});

// Starts and ends that many idle threads, because only the kernel has all limits of them. Returns
// ResourceExhausted that names the limit, its value and what is needed. Blocks for some 20 µs per
// thread.
absl::Status try_threads(std::string_view program, uint64_t threads, const ShellLimits& limits,
                         const MachineRoots& roots = {});

// Both checks, with this process's limits.
absl::Status check_start_needs(std::string_view program, const StartNeeds& needs);

// Describes the limits that are set, for a program that fails on one of them later: "ulimit -v 2000
// MiB, pids.max 100 of /sys/fs/cgroup (97 used)". "" without any.
std::string describe_limits(const ShellLimits& limits, const MachineRoots& roots = {});

// From now on an uncaught exception, which means a lack of memory or threads, ends the process with
// SIGABRT and a line that has the limits which are set. If address space is limited, the allocator
// uses little of it. `program` outlives the process. Called once, at the process's start.
void name_limits_at_abort(const char* program);

}  // namespace muster
