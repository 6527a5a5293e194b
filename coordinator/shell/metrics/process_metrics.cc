#include "coordinator/shell/metrics/process_metrics.h"

#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "daemon/metric_families.h"

namespace muster::coordinator {
namespace {

using daemon::counters;
using daemon::gauges;

// Positions in /proc/PID/stat behind the program's name, which ends with the last parenthesis
// (proc(5) counts them from 3).
constexpr size_t kUserTicks = 14 - 3;
constexpr size_t kSystemTicks = 15 - 3;
constexpr size_t kStartTicks = 22 - 3;
constexpr size_t kVirtualBytes = 23 - 3;
constexpr size_t kResidentPages = 24 - 3;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the machine's start in Unix time; 0: unknown.
double boot_time(const std::string& proc) {
  std::ifstream file(absl::StrCat(proc, "/stat"));
  for (std::string line; std::getline(file, line);) {
    double seconds = 0;
    constexpr std::string_view kBoot = "btime ";
    if (line.starts_with(kBoot) && absl::SimpleAtod(line.substr(kBoot.size()), &seconds))
      return seconds;
  }
  return 0;
}

}  // namespace

std::optional<int64_t> open_descriptors(const std::string& proc) {
  const std::string folder = absl::StrCat(proc, "/self/fd");
  // Since Linux 6.2 the size of the folder is the number of descriptors. Reading the folder of a
  // coordinator with 100,000 connections takes tens of milliseconds.
  struct stat info {};
  struct statfs system {};
  const bool is_proc = statfs(folder.c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
  if (is_proc && stat(folder.c_str(), &info) == 0 && info.st_size > 0) return info.st_size;
  std::error_code error;
  int64_t count = 0;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error))
    ++count;
  if (error) return std::nullopt;
  return count;
}

ProcessMetrics::ProcessMetrics(prometheus::Registry& registry, std::string proc)
    : proc_(std::move(proc)),
      cpu_seconds_(counters<"process_cpu_seconds_total">(registry).Add({})),
      resident_bytes_(gauges<"process_resident_memory_bytes">(registry).Add({})),
      virtual_bytes_(gauges<"process_virtual_memory_bytes">(registry).Add({})),
      open_fds_(gauges<"process_open_fds">(registry).Add({})),
      max_fds_(gauges<"process_max_fds">(registry).Add({})),
      start_time_(gauges<"process_start_time_seconds">(registry).Add({})) {}

void ProcessMetrics::update() {
  read_stat();
  if (const auto open = open_descriptors(proc_)) open_fds_.Set(static_cast<double>(*open));
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) max_fds_.Set(static_cast<double>(limit.rlim_cur));
}

void ProcessMetrics::read_stat() {
  const std::string text = text_of(absl::StrCat(proc_, "/self/stat"));
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return;
  const std::vector<std::string> fields =
      absl::StrSplit(text.substr(name_end + 1), ' ', absl::SkipEmpty());
  const auto number = [&](size_t field) {
    double value = 0;
    return field < fields.size() && absl::SimpleAtod(fields[field], &value) ? value : 0;
  };
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const double cpu = (number(kUserTicks) + number(kSystemTicks)) / ticks;
  cpu_seconds_.Increment(std::max(0.0, cpu - cpu_seconds_.Value()));
  virtual_bytes_.Set(number(kVirtualBytes));
  resident_bytes_.Set(number(kResidentPages) * static_cast<double>(sysconf(_SC_PAGESIZE)));
  if (const double boot = boot_time(proc_); boot > 0)
    start_time_.Set(boot + number(kStartTicks) / ticks);
}

}  // namespace muster::coordinator
