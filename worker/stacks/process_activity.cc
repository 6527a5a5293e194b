#include "worker/stacks/process_activity.h"

#include <dirent.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

#include "worker/stacks/proc_files.h"
#include "worker/stacks/working_process.h"

namespace muster::worker {
namespace {

// A rank with two dozen data loaders, each with a thread per core.
constexpr size_t kTreeProcessesMax = 256;
constexpr size_t kTreeThreadsMax = 4096;
constexpr size_t kTreeFileBytesMax = 4096;
// A training has some hundred files and sockets open.
constexpr int kOpenFilesMax = 4096;

Duration duration_of_ticks(uint64_t ticks) {
  const auto per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(static_cast<double>(ticks) / per_second));
}

// Returns the bytes that the process has read and written; nullopt if they are not readable.
std::optional<uint64_t> io_bytes_of(const std::string& folder) {
  const auto text = read_proc_file(folder + "/io", kTreeFileBytesMax);
  if (!text) return std::nullopt;
  uint64_t sum = 0;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    uint64_t bytes = 0;
    if ((absl::ConsumePrefix(&line, "rchar: ") || absl::ConsumePrefix(&line, "wchar: ")) &&
        absl::SimpleAtoi(line, &bytes))
      sum += bytes;
  }
  return sum;
}

// Returns whether the process has a GPU or another accelerator open; nullopt if its files are not
// readable, or are too many.
std::optional<bool> has_open_device(const std::string& folder) {
  const std::string files = folder + "/fd";
  DIR* listing = opendir(files.c_str());
  if (listing == nullptr) return std::nullopt;
  absl::Cleanup close_listing = [&] { closedir(listing); };
  for (int i = 0; i < kOpenFilesMax; ++i) {
    const dirent* entry = readdir(listing);
    if (entry == nullptr) return false;
    std::array<char, 64> path{};
    const ssize_t size =
        readlink(absl::StrCat(files, "/", entry->d_name).c_str(), path.data(), path.size());
    // A file may be closed meanwhile.
    if (size < 0 && errno != ENOENT && entry->d_name[0] != '.') return std::nullopt;
    if (size <= 0) continue;
    const absl::string_view name(path.data(), static_cast<size_t>(size));
    for (const absl::string_view device :
         {"/dev/nvidia", "/dev/kfd", "/dev/accel", "/dev/neuron", "/dev/hl", "/dev/vfio/"}) {
      if (absl::StartsWith(name, device)) return true;
    }
  }
  return std::nullopt;
}

// Returns whether the system call with these arguments ends by itself after some time.
bool has_time_limit(int64_t call, const std::array<uint64_t, 6>& arguments) {
  const auto is_finite = [&](size_t index) { return static_cast<int32_t>(arguments[index]) >= 0; };
  switch (call) {
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
      return true;
    // After an interruption by a tracer, sleeps and waits with a time limit continue under this
    // number with the same arguments. Of those without a limit, only poll() does.
    case SYS_restart_syscall:
      return arguments[2] != UINT32_MAX && arguments[2] != UINT64_MAX;
#ifdef SYS_poll
    case SYS_poll:
      return is_finite(2);
#endif
    case SYS_ppoll:
      return arguments[2] != 0;
#ifdef SYS_select
    case SYS_select:
      return arguments[4] != 0;
#endif
    case SYS_pselect6:
      return arguments[4] != 0;
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
      return is_finite(3);
#endif
    case SYS_epoll_pwait:
      return is_finite(3);
#ifdef SYS_epoll_pwait2
    case SYS_epoll_pwait2:
      return arguments[3] != 0;
#endif
    case SYS_futex: {
      const uint64_t operation = arguments[1] & FUTEX_CMD_MASK;
      const bool waits = operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET ||
                         operation == FUTEX_LOCK_PI || operation == FUTEX_WAIT_REQUEUE_PI;
      return waits && arguments[3] != 0;
    }
    default:
      return false;
  }
}

// A system call in which a thread waits.
struct SystemCall {
  int64_t number = -1;  // -1: none
  std::array<uint64_t, 6> arguments{};
};

// Returns the system call of the main thread; nullopt if it is not readable.
std::optional<SystemCall> read_system_call(const std::string& folder) {
  const auto text = read_proc_file(folder + "/syscall", kTreeFileBytesMax);
  if (!text) return std::nullopt;
  // "running", or "7 0x… (six arguments) SP PC"; "-1 SP PC" outside of a system call.
  const std::vector<absl::string_view> words =
      absl::StrSplit(*text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  SystemCall call;
  if (words.size() <= call.arguments.size() || !absl::SimpleAtoi(words[0], &call.number))
    return SystemCall();
  for (size_t i = 0; i < call.arguments.size(); ++i)
    if (!absl::SimpleHexAtoi(words[i + 1], &call.arguments[i])) return std::nullopt;
  return call;
}

// Returns whether the main thread waits for a limited time; nullopt if that is not readable.
std::optional<bool> is_waiting_for_time(const std::string& folder) {
  const auto call = read_system_call(folder);
  if (!call) return std::nullopt;
  return has_time_limit(call->number, call->arguments);
}

// Returns whether the system call only lets time pass. Python before 3.11 sleeps in a select()
// without files.
bool is_sleep(const SystemCall& call) {
  switch (call.number) {
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
      return true;
#ifdef SYS_select
    case SYS_select:
      return call.arguments[0] == 0;
#endif
    case SYS_pselect6:
      return call.arguments[0] == 0;
    default:
      return false;
  }
}

class ActivityReader {
 public:
  explicit ActivityReader(const std::string& proc_root) : proc_root_(proc_root) {}

  ProcessActivity read(pid_t root) {
    pids_ = {root};
    working_ = working_process(proc_root_, root);
    activity_.is_known = true;
    for (size_t i = 0; i < pids_.size(); ++i) add(pids_[i]);
    activity_.cpu = duration_of_ticks(ticks_);
    return std::move(activity_);
  }

 private:
  // Returns the value, or `otherwise` if it could not be read: then nothing is concluded from the
  // activity.
  template <class T>
  T known(const std::optional<T>& value, T otherwise) {
    activity_.is_known = activity_.is_known && value.has_value();
    return value.value_or(otherwise);
  }

  void add(pid_t pid) {
    const auto stat = read_task_stat(proc_root_, pid);
    if (!stat) {
      activity_.is_known = false;
      return;
    }
    const std::string folder = absl::StrCat(proc_root_, "/", pid);
    ticks_ += stat->cpu_ticks + stat->children_cpu_ticks;
    const std::vector<pid_t> tids = read_thread_ids(proc_root_, pid, kTreeThreadsMax + 1);
    const bool is_dead = stat->state == 'Z' && tids.size() <= 1;
    if (is_dead) return;
    activity_.io_bytes += known<uint64_t>(io_bytes_of(folder), 0);
    // A stopped process neither continues after a sleep nor waits for its device.
    if (stat->state != 'T') {
      activity_.has_device |= known(has_open_device(folder), false);
      activity_.is_asleep |= known(is_waiting_for_time(folder), false);
    } else if (pid != working_ && activity_.stopped_pid == 0) {
      activity_.stopped_pid = pid;
      activity_.stopped_name = stat->name;
    }
    threads_ += tids.size();
    if (tids.empty() || threads_ > kTreeThreadsMax) {
      activity_.is_known = false;
      return;
    }
    for (const pid_t tid : tids) add_thread(pid, tid);
  }

  void add_thread(pid_t pid, pid_t tid) {
    const auto stat = read_task_stat(proc_root_, pid, tid);
    const auto children = read_proc_file(
        absl::StrCat(proc_root_, "/", pid, "/task/", tid, "/children"), kTreeFileBytesMax);
    if (!stat || !children) {
      activity_.is_known = false;
      return;
    }
    if (stat->state == 'R' || stat->state == 'D') ++activity_.busy;
    for (const absl::string_view word :
         absl::StrSplit(*children, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
      pid_t child = 0;
      if (!absl::SimpleAtoi(word, &child)) continue;
      if (pids_.size() < kTreeProcessesMax)
        pids_.push_back(child);
      else
        activity_.is_known = false;
    }
  }

  const std::string& proc_root_;
  ProcessActivity activity_;
  std::vector<pid_t> pids_;
  pid_t working_ = 0;
  size_t threads_ = 0;
  uint64_t ticks_ = 0;
};

}  // namespace

ProcessActivity read_process_activity(const std::string& proc_root, pid_t pid) {
  return ActivityReader(proc_root).read(pid);
}

bool is_main_thread_awake(const std::string& proc_root, pid_t pid) {
  const auto stat = read_task_stat(proc_root, pid, pid);
  if (!stat) return false;
  if (stat->state == 'R' || stat->state == 'D') return true;
  if (stat->state != 'S') return false;
  const auto call = read_system_call(absl::StrCat(proc_root, "/", pid));
  return call && is_sleep(*call);
}

}  // namespace muster::worker
