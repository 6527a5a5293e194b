// Reads /proc files of processes and their threads. Every read is bounded, and no read blocks on
// the process: files that need the process's memory lock (maps, cmdline) are not read here. Names
// are made printable, because programs choose their own names.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/files/user_rights.h"

namespace muster::worker {

constexpr char kProcRoot[] = "/proc";

// Returns the first bytes of a file, at most `bytes_max`; nullopt, with errno set, if the file
// cannot be opened or read.
std::optional<std::string> read_proc_file(const std::string& path, size_t bytes_max);

// Fields of a line of /proc/PID/stat or /proc/PID/task/TID/stat.
struct TaskStat {
  std::string name;  // name of the program or thread; at most 15 bytes before escaping
  char state = '?';
  // start time since boot; pid and start time together identify a process
  uint64_t start_ticks = 0;
  bool has_memory = false;  // false once the process exits, which is before it becomes a zombie
  // begin of the main thread's stack, which changes when the process calls exec; 0: access is
  // denied
  uint64_t stack_start = 0;
  // user and system time in clock ticks, and that of the child processes that it has waited for
  uint64_t cpu_ticks = 0;
  uint64_t children_cpu_ticks = 0;
};
std::optional<TaskStat> parse_task_stat(std::string_view line);
std::optional<TaskStat> read_task_stat(const std::string& proc_root, pid_t pid);
std::optional<TaskStat> read_task_stat(const std::string& proc_root, pid_t pid, pid_t tid);

// Returns the threads of a process, main thread first, at most `count_max`; an empty list if there
// is no such process.
std::vector<pid_t> read_thread_ids(const std::string& proc_root, pid_t pid, size_t count_max);

// A process's state and its tracer, read at one moment.
struct TraceState {
  char state = '?';  // '?': no such process
  pid_t tracer = 0;  // a thread id; 0: none
};
TraceState read_trace_state(const std::string& proc_root, pid_t pid);
// Returns whether `tid` is a thread of this program: such a tracer only reads a stack and detaches
// soon.
bool is_own_thread(const std::string& proc_root, pid_t tid);

// Returns the real user and group of a process, and its groups; nullopt if it does not exist.
std::optional<UserIds> read_process_user(const std::string& proc_root, pid_t pid);

// Returns the user whose files a rank's process may name: that of the process with its groups, or
// the owner of the rank's folder if the process is gone or runs as this process's user (it may have
// executed a program with the set-user-id bit); nullopt as foreign_owner(). `pid`: 0: none.
// `has_users`: ranks run as other users, so the user is kNobody if there is no such folder.
std::optional<UserIds> user_of_rank(const std::string& folder, const std::string& proc_root,
                                    pid_t pid, bool has_users);

// Returns whether the process has a handler for `signal`.
bool handles_signal(const std::string& proc_root, pid_t pid, int signal);

// Returns the kernel function in which a thread waits; empty if it runs or the kernel does not
// reveal it.
std::string read_wait_channel(const std::string& proc_root, pid_t pid, pid_t tid);

// Returns a thread's kernel stack, innermost first: "io_schedule". Requires root.
std::vector<std::string> read_kernel_stack(const std::string& proc_root, pid_t pid, pid_t tid);

// The position in user code of a thread that waits in the kernel. Reading it requires permission to
// trace the thread.
struct UserPosition {
  uint64_t stack_pointer = 0;
  uint64_t instruction = 0;
  // arguments of the system call, by register; zeros if the thread is in no system call
  std::array<uint64_t, 6> arguments{};
};
std::optional<UserPosition> read_user_position(const std::string& proc_root, pid_t pid, pid_t tid);

}  // namespace muster::worker
