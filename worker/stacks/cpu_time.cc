#include "worker/stacks/cpu_time.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

#include "worker/stacks/proc_files.h"

namespace muster::worker {
namespace {

constexpr size_t kLimitsBytesMax = 16 << 10;
// The kernel compares the limit with the time that it counts in ticks of its clock. The times in
// /proc/PID/stat are exact, and may be less: on two loaded cores, a limit of 1 s was applied after
// 0.90 to 1.01 s. The difference is at most kLessMaxSeconds.
constexpr double kUsedUp = 0.75;
constexpr double kLessMaxSeconds = 5;

std::optional<int64_t> seconds_in(absl::string_view word) {
  int64_t seconds = 0;
  if (!absl::SimpleAtoi(word, &seconds) || seconds < 0) return std::nullopt;  // "unlimited"
  return seconds;
}

// Sets the limits from /proc/PID/limits: "Max cpu time    5    10    seconds".
void parse_limits(absl::string_view text, CpuTime& time) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, "Max cpu time")) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 2) return;
    time.soft_limit_s = seconds_in(words[0]);
    time.hard_limit_s = seconds_in(words[1]);
    return;
  }
}

}  // namespace

std::optional<CpuTime> read_cpu_time(const std::string& proc_root, pid_t pid) {
  const auto stat = read_task_stat(proc_root, pid);
  if (!stat) return std::nullopt;
  const auto ticks_per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  CpuTime time;
  time.used_s = static_cast<double>(stat->cpu_ticks) / ticks_per_second;
  time.used_by_children_s = static_cast<double>(stat->children_cpu_ticks) / ticks_per_second;
  if (const auto limits =
          read_proc_file(absl::StrCat(proc_root, "/", pid, "/limits"), kLimitsBytesMax))
    parse_limits(*limits, time);
  return time;
}

std::string cpu_limit_text(const std::optional<CpuTime>& time, int32_t signal, bool is_childs) {
  constexpr char kUsedUpText[] = "the limit of CPU time is used up (ulimit -t)";
  if (!time) return signal == SIGXCPU ? kUsedUpText : "";
  std::optional<int64_t> limit = time->hard_limit_s;
  if (signal == SIGXCPU) {
    limit = time->soft_limit_s;
    // The kernel raises the soft limit of the process by a second with each SIGXCPU.
    if (limit && !is_childs) --*limit;
    if (limit == 0) limit.reset();  // it was not raised
  }
  const double used = is_childs ? time->used_by_children_s : time->used_s;
  if (limit && used >= std::max(kUsedUp * static_cast<double>(*limit),
                                static_cast<double>(*limit) - kLessMaxSeconds))
    return absl::StrCat("the limit of CPU time is used up (ulimit -t): ", *limit, " s");
  // A shell's command may have limits of its own.
  if (signal != SIGXCPU) return "";
  return is_childs ? kUsedUpText
                   : "another process sent the signal: no limit of CPU time is used up";
}

}  // namespace muster::worker
