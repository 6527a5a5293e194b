#include "worker/stacks/proc_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"

namespace muster::worker {
namespace {

constexpr size_t kStatBytesMax = 4096;     // some fifty numbers
constexpr size_t kStatusBytesMax = 16384;  // processor masks grow with the machine
constexpr size_t kUserBytesMax = 1 << 20;  // the kernel's limit is 65,536 groups
constexpr size_t kKernelStackBytesMax = 16384;
constexpr size_t kKernelFramesMax = 64;
constexpr size_t kKernelNameBytesMax = 128;

std::string task_folder(const std::string& proc_root, pid_t pid, pid_t tid) {
  return absl::StrCat(proc_root, "/", pid, "/task/", tid);
}

std::string printable_name(std::string_view name) {
  return escape_controls(name.substr(0, kKernelNameBytesMax), Layout::kOneLine);
}

}  // namespace

std::optional<std::string> read_proc_file(const std::string& path, size_t bytes_max) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  std::string content(std::min<size_t>(bytes_max, 4096), '\0');
  size_t size = 0;
  int error = 0;
  while (size < bytes_max) {
    if (size == content.size()) content.resize(std::min(bytes_max, 2 * content.size()));
    const ssize_t got = read(fd, content.data() + size, content.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  close(fd);
  content.resize(size);
  if (error == 0) return content;
  errno = error;
  return std::nullopt;
}

std::optional<TaskStat> parse_task_stat(std::string_view line) {
  // "17 (name) S 1 …": the program chooses the name, which may have blanks and parentheses.
  const size_t open = line.find('(');
  const size_t close = line.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open)
    return std::nullopt;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(av(line.substr(close + 1)), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  // Counted from the state, which is field 3 in proc(5).
  constexpr size_t kStart = 22 - 3;
  constexpr size_t kMemoryBytes = 23 - 3;
  constexpr size_t kStackStart = 28 - 3;
  constexpr size_t kCpuTimes = 14 - 3;  // user and system time, then those of children
  TaskStat stat{.name = printable_name(line.substr(open + 1, close - open - 1))};
  std::array<uint64_t, 4> times{};
  if (fields.size() <= kStackStart || fields[0].size() != 1 ||
      !absl::SimpleAtoi(fields[kStart], &stat.start_ticks) ||
      !absl::SimpleAtoi(fields[kStackStart], &stat.stack_start)) {
    return std::nullopt;
  }
  for (size_t i = 0; i < times.size(); ++i)
    if (!absl::SimpleAtoi(fields[kCpuTimes + i], &times[i])) return std::nullopt;
  stat.cpu_ticks = times[0] + times[1];
  stat.children_cpu_ticks = times[2] + times[3];
  stat.state = fields[0][0];
  stat.has_memory = fields[kMemoryBytes] != "0";
  return stat;
}

std::optional<TaskStat> read_task_stat(const std::string& proc_root, pid_t pid) {
  const auto line = read_proc_file(absl::StrCat(proc_root, "/", pid, "/stat"), kStatBytesMax);
  return line ? parse_task_stat(*line) : std::nullopt;
}

std::optional<TaskStat> read_task_stat(const std::string& proc_root, pid_t pid, pid_t tid) {
  const auto line =
      read_proc_file(absl::StrCat(task_folder(proc_root, pid, tid), "/stat"), kStatBytesMax);
  return line ? parse_task_stat(*line) : std::nullopt;
}

std::vector<pid_t> read_thread_ids(const std::string& proc_root, pid_t pid, size_t count_max) {
  DIR* folder = opendir(absl::StrCat(proc_root, "/", pid, "/task").c_str());
  if (folder == nullptr) return {};
  absl::Cleanup close_folder = [&] { closedir(folder); };
  std::vector<pid_t> tids;
  // The kernel lists threads in the order of their creation; the main thread is the oldest.
  while (const dirent* entry = readdir(folder)) {
    pid_t tid = 0;
    if (!absl::SimpleAtoi(entry->d_name, &tid)) continue;
    if (tids.size() == count_max) break;
    tids.push_back(tid);
  }
  std::stable_partition(tids.begin(), tids.end(), [&](pid_t tid) { return tid == pid; });
  return tids;
}

TraceState read_trace_state(const std::string& proc_root, pid_t pid) {
  TraceState state;
  const auto status = read_proc_file(absl::StrCat(proc_root, "/", pid, "/status"), kStatusBytesMax);
  if (!status) return state;
  for (absl::string_view line : absl::StrSplit(*status, '\n')) {
    if (absl::ConsumePrefix(&line, "State:")) {
      line = absl::StripLeadingAsciiWhitespace(line);
      if (!line.empty()) state.state = line[0];
    } else if (absl::ConsumePrefix(&line, "TracerPid:")) {
      if (!absl::SimpleAtoi(line, &state.tracer)) state.tracer = 0;
    }
  }
  return state;
}

std::optional<UserIds> read_process_user(const std::string& proc_root, pid_t pid) {
  const auto status = read_proc_file(absl::StrCat(proc_root, "/", pid, "/status"), kUserBytesMax);
  if (!status) return std::nullopt;
  // "Uid:	1000	1000	1000	1000": the real, effective, saved and file-system ids.
  const auto numbers_of = [&](absl::string_view name) {
    std::vector<uint32_t> numbers;
    for (absl::string_view line : absl::StrSplit(*status, '\n')) {
      if (!absl::ConsumePrefix(&line, name)) continue;
      for (const absl::string_view word :
           absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty())) {
        uint32_t number = 0;
        if (absl::SimpleAtoi(word, &number)) numbers.push_back(number);
      }
      break;
    }
    return numbers;
  };
  const std::vector<uint32_t> uids = numbers_of("Uid:");
  const std::vector<uint32_t> gids = numbers_of("Gid:");
  if (uids.empty() || gids.empty()) return std::nullopt;
  UserIds user{.uid = uids.front(), .gid = gids.front(), .groups = {}};
  for (const uint32_t group : numbers_of("Groups:")) user.groups.push_back(group);
  return user;
}

std::optional<UserIds> user_of_rank(const std::string& folder, const std::string& proc_root,
                                    pid_t pid, bool has_users) {
  if (geteuid() != 0) return std::nullopt;
  auto process = pid > 0 ? read_process_user(proc_root, pid) : std::nullopt;
  if (process && process->uid != 0) return process;
  auto owner = foreign_owner(folder);
  if (!owner && has_users && access(folder.c_str(), F_OK) != 0)
    return UserIds{.uid = kNobody, .gid = kNobody, .groups = {kNobody}};
  return owner;
}

bool handles_signal(const std::string& proc_root, pid_t pid, int signal) {
  const auto status = read_proc_file(absl::StrCat(proc_root, "/", pid, "/status"), kStatusBytesMax);
  if (!status || signal < 1 || signal > 64) return false;
  for (absl::string_view line : absl::StrSplit(*status, '\n')) {
    uint64_t handled = 0;
    if (absl::ConsumePrefix(&line, "SigCgt:"))
      return absl::SimpleHexAtoi(absl::StripAsciiWhitespace(line), &handled) &&
             (handled >> (signal - 1) & 1) != 0;
  }
  return false;
}

bool is_own_thread(const std::string& proc_root, pid_t tid) {
  return tid > 0 && access(absl::StrCat(proc_root, "/self/task/", tid).c_str(), F_OK) == 0;
}

std::string read_wait_channel(const std::string& proc_root, pid_t pid, pid_t tid) {
  const auto channel =
      read_proc_file(absl::StrCat(task_folder(proc_root, pid, tid), "/wchan"), kKernelNameBytesMax);
  return !channel || *channel == "0" ? "" : printable_name(*channel);
}

std::vector<std::string> read_kernel_stack(const std::string& proc_root, pid_t pid, pid_t tid) {
  const auto stack = read_proc_file(absl::StrCat(task_folder(proc_root, pid, tid), "/stack"),
                                    kKernelStackBytesMax);
  std::vector<std::string> frames;
  if (!stack) return frames;
  // "[<0>] io_schedule+0x46/0x70"
  for (const absl::string_view line : absl::StrSplit(*stack, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 2 || frames.size() == kKernelFramesMax) continue;
    frames.push_back(printable_name(sv(words[1].substr(0, words[1].find('+')))));
  }
  return frames;
}

std::optional<UserPosition> read_user_position(const std::string& proc_root, pid_t pid, pid_t tid) {
  const auto line =
      read_proc_file(absl::StrCat(task_folder(proc_root, pid, tid), "/syscall"), kStatBytesMax);
  if (!line) return std::nullopt;
  // "running", or "7 0x… (six arguments) SP PC"; "-1 SP PC" if it waits outside of a system call (a
  // page fault).
  const std::vector<absl::string_view> words =
      absl::StrSplit(absl::StripSuffix(*line, "\n"), ' ', absl::SkipEmpty());
  UserPosition position;
  if (words.size() < 3 || !absl::SimpleHexAtoi(words[words.size() - 2], &position.stack_pointer) ||
      !absl::SimpleHexAtoi(words[words.size() - 1], &position.instruction)) {
    return std::nullopt;
  }
  const size_t count = position.arguments.size();
  for (size_t i = 0; i < count && words.size() == count + 3; ++i) {
    if (!absl::SimpleHexAtoi(words[i + 1], &position.arguments.at(i))) return std::nullopt;
  }
  return position;
}

}  // namespace muster::worker
