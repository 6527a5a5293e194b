#include "worker/stacks/process_evidence.h"

#include <chrono>
#include <thread>
#include <utility>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

#include "common/time.h"
#include "worker/stacks/proc_files.h"

namespace muster::worker {
namespace {

constexpr size_t kCgroupBytesMax = 64 << 10;
constexpr size_t kEventsBytesMax = 4096;
// A reader of ours holds a thread for some tens of microseconds.
constexpr int kLooksMax = 10;
constexpr Duration kLookAgain = std::chrono::milliseconds(1);
constexpr char kHeldChannel[] = "ptrace_stop";

// The file that counts, for a line of /proc/PID/cgroup: "0::/jobs/7" (v2), "4:memory,cpu:/jobs/7" (v1); empty: not this line.
std::string counting_file(const std::string& cgroup_root, absl::string_view line) {
  const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
  // A folder's name may be anything, but the kernel's own paths do not go up.
  if (parts.size() != 3 || absl::StrContains(parts[2], "/../")) return "";
  if (parts[0] == "0" && parts[1].empty())
    return absl::StrCat(cgroup_root, parts[2], "/memory.events");
  for (const absl::string_view controller : absl::StrSplit(parts[1], ',')) {
    if (controller == "memory")
      return absl::StrCat(cgroup_root, "/memory", parts[2], "/memory.oom_control");
  }
  return "";
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

void read_process_state(const std::string& proc_root, pid_t pid, RankEvidence& evidence) {
  bool is_ours = true;
  for (int look = 0; look < kLooksMax; ++look) {
    if (look > 0) std::this_thread::sleep_for(kLookAgain);
    const TraceState state = read_trace_state(proc_root, pid);
    is_ours = state.tracer == 0 || is_own_thread(proc_root, state.tracer);
    evidence.process_state = state.state;
    evidence.tracer_pid = is_ours ? 0 : state.tracer;
    evidence.wait_channel = read_wait_channel(proc_root, pid, pid);
    // It may also be let go between two looks, by a thread that is gone then.
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
  const auto groups = read_proc_file(absl::StrCat(proc_root, "/", pid, "/cgroup"), kCgroupBytesMax);
  if (!groups) return counter;
  for (const absl::string_view line : absl::StrSplit(*groups, '\n')) {
    std::string path = counting_file(cgroup_root, line);
    // Both versions may be there; memory is counted by one of them.
    if (!path.empty() && kills_in(path) >= 0) counter.path_ = std::move(path);
  }
  return counter;
}

int64_t OomKillCounter::count() const { return path_.empty() ? -1 : kills_in(path_); }

}  // namespace muster::worker
