#include "worker/stacks/process_activity.h"

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
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

// Returns the bytes that the process has read and written; 0 if the kernel hides them.
uint64_t io_bytes_of(const std::string& folder) {
  const auto text = read_proc_file(folder + "/io", kTreeFileBytesMax);
  if (!text) return 0;
  uint64_t sum = 0;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    uint64_t bytes = 0;
    if ((absl::ConsumePrefix(&line, "rchar: ") || absl::ConsumePrefix(&line, "wchar: ")) &&
        absl::SimpleAtoi(line, &bytes))
      sum += bytes;
  }
  return sum;
}

// Returns whether the process has a GPU or another accelerator open.
bool has_open_device(const std::string& folder) {
  const std::string files = folder + "/fd";
  DIR* listing = opendir(files.c_str());
  if (listing == nullptr) return false;
  absl::Cleanup close_listing = [&] { closedir(listing); };
  for (int i = 0; i < kOpenFilesMax; ++i) {
    const dirent* entry = readdir(listing);
    if (entry == nullptr) return false;
    std::array<char, 64> path{};
    const ssize_t size =
        readlink(absl::StrCat(files, "/", entry->d_name).c_str(), path.data(), path.size());
    if (size <= 0) continue;
    const absl::string_view name(path.data(), static_cast<size_t>(size));
    for (const absl::string_view device :
         {"/dev/nvidia", "/dev/kfd", "/dev/accel", "/dev/neuron", "/dev/hl", "/dev/vfio/"}) {
      if (absl::StartsWith(name, device)) return true;
    }
  }
  return false;
}

// Returns whether the main thread is in nanosleep(), or in select() without files.
bool sleeps(const std::string& proc_root, pid_t pid) {
  const auto text =
      read_proc_file(absl::StrCat(proc_root, "/", pid, "/syscall"), kTreeFileBytesMax);
  if (!text) return false;
  const std::vector<absl::string_view> words =
      absl::StrSplit(*text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  int64_t call = -1;
  if (words.size() < 2 || !absl::SimpleAtoi(words[0], &call)) return false;
  // After an interruption by a tracer, the sleep continues in restart_syscall() with the same
  // arguments. The first one is the clock, and an address for other calls that are restarted.
  const bool is_restarted = call == SYS_restart_syscall && (words[1] == "0x0" || words[1] == "0x1");
  const bool is_sleep = call == SYS_nanosleep || call == SYS_clock_nanosleep || is_restarted;
  bool is_select = call == SYS_pselect6;
#ifdef SYS_select
  is_select = is_select || call == SYS_select;
#endif
  return is_sleep || (is_select && words[1] == "0x0");
}

class ActivityReader {
 public:
  explicit ActivityReader(const std::string& proc_root) : proc_root_(proc_root) {}

  ProcessActivity read(pid_t root) {
    pids_ = {root};
    working_ = working_process(proc_root_, root);
    activity_.is_known = read_task_stat(proc_root_, root).has_value();
    for (size_t i = 0; i < pids_.size(); ++i) add(pids_[i]);
    activity_.cpu = duration_of_ticks(ticks_);
    activity_.is_asleep = sleeps(proc_root_, working_);
    return std::move(activity_);
  }

 private:
  void add(pid_t pid) {
    const auto stat = read_task_stat(proc_root_, pid);
    if (!stat) return;
    const std::string folder = absl::StrCat(proc_root_, "/", pid);
    ticks_ += stat->cpu_ticks + stat->children_cpu_ticks;
    activity_.io_bytes += io_bytes_of(folder);
    activity_.has_device = activity_.has_device || has_open_device(folder);
    if (pid != working_ && stat->state == 'T' && activity_.stopped_pid == 0) {
      activity_.stopped_pid = pid;
      activity_.stopped_name = stat->name;
    }
    const std::vector<pid_t> tids = read_thread_ids(proc_root_, pid, kTreeThreadsMax + 1);
    threads_ += tids.size();
    if (threads_ > kTreeThreadsMax) {
      activity_.is_known = false;
      return;
    }
    for (const pid_t tid : tids) add_thread(pid, tid);
  }

  void add_thread(pid_t pid, pid_t tid) {
    const auto stat = read_task_stat(proc_root_, pid, tid);
    if (stat && (stat->state == 'R' || stat->state == 'D')) ++activity_.busy;
    const auto children = read_proc_file(
        absl::StrCat(proc_root_, "/", pid, "/task/", tid, "/children"), kTreeFileBytesMax);
    if (!children) return;
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

}  // namespace muster::worker
