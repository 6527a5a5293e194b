#include "worker/stacks/process_evidence.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

#include "common/time/time.h"
#include "worker/stacks/proc_files.h"

namespace muster::worker {
namespace {

constexpr size_t kCgroupBytesMax = 64 << 10;
constexpr size_t kEventsBytesMax = 4096;
constexpr size_t kMemoryStatBytesMax = 64 << 10;
constexpr int kGroupLevelsMax = 32;
constexpr uint64_t kLimitMax = uint64_t{1} << 60;
// A reader of ours holds a thread for some tens of microseconds.
constexpr int kReadsMax = 10;
constexpr Duration kReadInterval = std::chrono::milliseconds(1);
constexpr char kHeldChannel[] = "ptrace_stop";

// File names of one control group, by cgroup version.
struct MemoryFiles {
  const char* events;
  const char* used;
  const char* peak;
  std::array<const char*, 2> limits;  // the lower one takes effect; nullptr: there is no second
  // keys of memory.stat: file pages, which can be read again
  std::array<absl::string_view, 2> cache;
};
constexpr MemoryFiles kVersion1{"/memory.oom_control",
                                "/memory.usage_in_bytes",
                                "/memory.max_usage_in_bytes",
                                {"/memory.limit_in_bytes", nullptr},
                                {"total_inactive_file ", "total_active_file "}};
constexpr MemoryFiles kVersion2{"/memory.events",
                                "/memory.current",
                                "/memory.peak",
                                {"/memory.max", "/memory.high"},
                                {"inactive_file ", "active_file "}};

struct MemoryGroup {
  std::string root;  // root of the hierarchy: "/sys/fs/cgroup/memory"
  std::string path;  // relative to root: "/jobs/7"
  const MemoryFiles* files;

  std::string file(const char* name) const { return absl::StrCat(root, path, name); }
};

// Parses a line of /proc/PID/cgroup: "0::/jobs/7" (v2), "4:memory,cpu:/jobs/7" (v1); nullopt: not
// the memory controller.
std::optional<MemoryGroup> parse_memory_group(const std::string& cgroup_root,
                                              absl::string_view line) {
  const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
  // A folder may have any name, but the kernel's own paths do not go up.
  if (parts.size() != 3 || absl::StrContains(parts[2], "/../")) return std::nullopt;
  if (parts[0] == "0" && parts[1].empty())
    return MemoryGroup{cgroup_root, std::string(parts[2]), &kVersion2};
  for (const absl::string_view controller : absl::StrSplit(parts[1], ',')) {
    if (controller == "memory")
      return MemoryGroup{absl::StrCat(cgroup_root, "/memory"), std::string(parts[2]), &kVersion1};
  }
  return std::nullopt;
}

// Both versions may be mounted; one of them controls memory.
std::vector<MemoryGroup> memory_groups(const std::string& proc_root, const std::string& cgroup_root,
                                       pid_t pid) {
  std::vector<MemoryGroup> groups;
  const auto lines = read_proc_file(absl::StrCat(proc_root, "/", pid, "/cgroup"), kCgroupBytesMax);
  if (!lines) return groups;
  for (const absl::string_view line : absl::StrSplit(*lines, '\n')) {
    if (auto group = parse_memory_group(cgroup_root, line)) groups.push_back(*std::move(group));
  }
  return groups;
}

// Returns 0 if there is no number, as for "max".
uint64_t number_in(const std::string& path) {
  uint64_t number = 0;
  const auto text = read_proc_file(path, kEventsBytesMax);
  return text && absl::SimpleAtoi(*text, &number) ? number : 0;
}

uint64_t cache_of(const MemoryGroup& group) {
  const auto text = read_proc_file(group.file("/memory.stat"), kMemoryStatBytesMax);
  if (!text) return 0;
  uint64_t sum = 0;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    uint64_t bytes = 0;
    for (const absl::string_view name : group.files->cache)
      if (absl::ConsumePrefix(&line, name) && absl::SimpleAtoi(line, &bytes)) sum += bytes;
  }
  return sum;
}

// Returns the group's own limit and use; limit 0: none. Version 1 represents no limit by a huge
// number.
MemoryUse use_of(const MemoryGroup& group) {
  uint64_t limit = 0;
  for (const char* name : group.files->limits) {
    if (name == nullptr) continue;
    const uint64_t found = number_in(group.file(name));
    if (found > 0 && (limit == 0 || found < limit)) limit = found;
  }
  if (limit == 0 || limit > kLimitMax) return {};
  const uint64_t used = number_in(group.file(group.files->used));
  return {used - std::min(used, cache_of(group)), limit};
}

int64_t kills_in(const std::string& path) {
  const auto events = read_proc_file(path, kEventsBytesMax);
  if (!events) return -1;
  for (absl::string_view line : absl::StrSplit(*events, '\n')) {
    int64_t count = 0;
    if (absl::ConsumePrefix(&line, "oom_kill ") && absl::SimpleAtoi(line, &count)) return count;
  }
  return -1;
}

}  // namespace

MemoryUse read_memory_use(const std::string& proc_root, const std::string& cgroup_root, pid_t pid) {
  MemoryUse tightest;
  for (MemoryGroup group : memory_groups(proc_root, cgroup_root, pid)) {
    for (int level = 0; level < kGroupLevelsMax; ++level) {
      const MemoryUse use = use_of(group);
      if (use.limit > 0 && (tightest.limit == 0 || use.part() > tightest.part())) tightest = use;
      if (group.path.size() <= 1) break;
      group.path.resize(group.path.rfind('/'));
    }
  }
  return tightest;
}

void read_process_state(const std::string& proc_root, pid_t pid, RankEvidence& evidence) {
  bool is_ours = true;
  for (int read_number = 0; read_number < kReadsMax; ++read_number) {
    if (read_number > 0) std::this_thread::sleep_for(kReadInterval);
    const TraceState state = read_trace_state(proc_root, pid);
    is_ours = state.tracer == 0 || is_own_thread(proc_root, state.tracer);
    evidence.process_state = state.state;
    evidence.tracer_pid = is_ours ? 0 : state.tracer;
    evidence.wait_channel = read_wait_channel(proc_root, pid, pid);
    // The thread may also be released between two samples, by a tracer that is gone then.
    const bool is_held = is_ours ? state.state == 't' || evidence.wait_channel == kHeldChannel
                                 : !read_task_stat(proc_root, state.tracer);
    if (!is_held) return;
  }
  if (!is_ours) return;
  evidence.process_state = 'S';
  evidence.wait_channel.clear();
}

OomKillCounter OomKillCounter::of(const std::string& proc_root, const std::string& cgroup_root,
                                  pid_t pid) {
  OomKillCounter counter;
  for (const MemoryGroup& group : memory_groups(proc_root, cgroup_root, pid)) {
    std::string path = group.file(group.files->events);
    if (kills_in(path) < 0) continue;
    counter.path_ = std::move(path);
    counter.limit_name_ = group.files->limits[0];
    counter.peak_name_ = group.files->peak;
    counter.root_length_ = group.root.size();
  }
  return counter;
}

OomKillCounter::Smallest OomKillCounter::smallest() const {
  Smallest smallest;
  std::string folder = path_;
  for (int level = 0; level < kGroupLevelsMax && folder.size() > root_length_; ++level) {
    folder.resize(folder.rfind('/'));
    const uint64_t found = number_in(folder + limit_name_);
    if (found > 0 && found < kLimitMax && (smallest.limit == 0 || found < smallest.limit))
      smallest = {found, folder};
  }
  return smallest;
}

uint64_t OomKillCounter::limit() const { return smallest().limit; }

uint64_t OomKillCounter::peak() const {
  const Smallest found = smallest();
  return found.limit == 0 ? 0 : number_in(found.folder + peak_name_);
}

std::string OomKillCounter::group() const {
  const size_t end = path_.rfind('/');
  return path_.empty() || end <= root_length_ ? "" : path_.substr(root_length_, end - root_length_);
}

int64_t OomKillCounter::count() const { return path_.empty() ? -1 : kills_in(path_); }

}  // namespace muster::worker
