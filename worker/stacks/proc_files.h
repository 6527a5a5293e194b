// What /proc says of processes and their threads. Every read is bounded, none waits for the process: files that need its memory lock
// (maps, cmdline) are not read here. Programs name themselves: names are made printable.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::worker {

constexpr char kProcRoot[] = "/proc";

// At most `bytes_max` of a file; nullopt with errno set when it cannot be opened or read.
std::optional<std::string> read_proc_file(const std::string& path, size_t bytes_max);

// A line of /proc/PID/stat or /proc/PID/task/TID/stat.
struct TaskStat {
  std::string name;  // at most 15 bytes before escaping
  char state = '?';
  uint64_t start_ticks = 0;  // since boot: with the pid it names one life
  bool has_memory = false;   // not any more once it is on its way out, before it is a zombie
  uint64_t stack_start =
      0;  // of the main thread: another one after an exec; 0 for who may not know

  friend bool operator==(const TaskStat&, const TaskStat&) = default;
};
std::optional<TaskStat> parse_task_stat(std::string_view line);
std::optional<TaskStat> read_task_stat(const std::string& proc_root, pid_t pid);
std::optional<TaskStat> read_task_stat(const std::string& proc_root, pid_t pid, pid_t tid);

// Threads of a process, the main one first, at most `count_max`; empty: there is no such process.
std::vector<pid_t> read_thread_ids(const std::string& proc_root, pid_t pid, size_t count_max);

// A process' state and who traces it, as the kernel says both at one moment.
struct TraceState {
  char state = '?';  // '?': there is no such process
  pid_t tracer = 0;  // a thread's id; 0: nobody
};
TraceState read_trace_state(const std::string& proc_root, pid_t pid);
// Whether the one that traces is a thread of this program, which reads a stack and lets go soon.
bool is_own_thread(const std::string& proc_root, pid_t tid);

// Whether it has a handler for a signal.
bool handles_signal(const std::string& proc_root, pid_t pid, int signal);

// The kernel function in which a thread waits; empty when it runs or the kernel does not tell.
std::string read_wait_channel(const std::string& proc_root, pid_t pid, pid_t tid);

// The kernel's own stack of a thread, innermost first: "io_schedule"; for root.
std::vector<std::string> read_kernel_stack(const std::string& proc_root, pid_t pid, pid_t tid);

// Where a thread that waits in the kernel has left user code. For who may trace it.
struct UserPosition {
  uint64_t stack_pointer = 0;
  uint64_t instruction = 0;
  std::array<uint64_t, 6>
      arguments{};  // of the system call, by the registers that they are in; zeros outside of one
};
std::optional<UserPosition> read_user_position(const std::string& proc_root, pid_t pid, pid_t tid);

}  // namespace muster::worker
