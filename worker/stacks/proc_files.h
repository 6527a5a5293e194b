// Reads /proc files of processes and their threads. Every read is bounded and none blocks on the
// process: files that need its memory lock (maps, cmdline) are not read here. Programs choose their
// names, so names are made printable.
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

// Returns at most `bytes_max` of a file; nullopt with errno set if it cannot be opened or read.
std::optional<std::string> read_proc_file(const std::string& path, size_t bytes_max);

// A line of /proc/PID/stat or /proc/PID/task/TID/stat.
struct TaskStat {
  std::string name;  // at most 15 bytes before escaping
  char state = '?';
  uint64_t start_ticks = 0;  // since boot: identifies a process together with its pid
  bool has_memory = false;   // false once it exits, before it is a zombie
  // of the main thread; changes with an exec; 0 if access is denied
  uint64_t stack_start = 0;

  friend bool operator==(const TaskStat&, const TaskStat&) = default;
};
std::optional<TaskStat> parse_task_stat(std::string_view line);
std::optional<TaskStat> read_task_stat(const std::string& proc_root, pid_t pid);
std::optional<TaskStat> read_task_stat(const std::string& proc_root, pid_t pid, pid_t tid);

// Returns the threads of a process, main thread first, at most `count_max`; empty: there is no such
// process.
std::vector<pid_t> read_thread_ids(const std::string& proc_root, pid_t pid, size_t count_max);

// A process's state and its tracer, read at one moment.
struct TraceState {
  char state = '?';  // '?': no such process
  pid_t tracer = 0;  // a thread id; 0: none
};
TraceState read_trace_state(const std::string& proc_root, pid_t pid);
// Returns whether the tracer is a thread of this program, which reads a stack and detaches soon.
bool is_own_thread(const std::string& proc_root, pid_t tid);

// Returns whether the process has a handler for `signal`.
bool handles_signal(const std::string& proc_root, pid_t pid, int signal);

// Returns the kernel function in which a thread waits; empty if it runs or the kernel does not
// reveal it.
std::string read_wait_channel(const std::string& proc_root, pid_t pid, pid_t tid);

// Returns a thread's kernel stack, innermost first: "io_schedule". Requires root.
std::vector<std::string> read_kernel_stack(const std::string& proc_root, pid_t pid, pid_t tid);

// Position in user code of a thread that waits in the kernel. Requires permission to trace it.
struct UserPosition {
  uint64_t stack_pointer = 0;
  uint64_t instruction = 0;
  // arguments of the system call, by register; zeros outside of one
  std::array<uint64_t, 6> arguments{};
};
std::optional<UserPosition> read_user_position(const std::string& proc_root, pid_t pid, pid_t tid);

}  // namespace muster::worker
