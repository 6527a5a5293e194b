#include "trainer_core/startup/cpu_contention.h"

#include <sched.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

// The maximum share of a measurement's CPU time that its threads may wait. Wake-ups on an idle
// virtual machine cost up to 5%.
constexpr double kWaitShareMax = 0.1;
constexpr double kStolenShareMax = 0.05;
constexpr double kNanosecond = 1e-9;

// The CPUs that this process may use.
class OwnCpus {
 public:
  OwnCpus() { is_known_ = sched_getaffinity(0, sizeof(mask_), &mask_) == 0; }
  // True for all if there are more CPUs than a cpu_set_t has.
  bool contain(int cpu) const { return !is_known_ || cpu >= CPU_SETSIZE || CPU_ISSET(cpu, &mask_); }

 private:
  cpu_set_t mask_{};
  bool is_known_ = false;
};

// Returns the stolen time of the CPUs in /proc/stat: "cpu3 user nice system idle iowait irq softirq
// steal …", in ticks.
double read_stolen(const std::string& path) {
  const OwnCpus own;
  std::ifstream file(path);
  double ticks = 0;
  for (std::string line; std::getline(file, line) && absl::StartsWith(line, "cpu");) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    int cpu = 0;
    if (!absl::SimpleAtoi(name.substr(3), &cpu) || !own.contain(cpu)) continue;
    double value = 0;
    constexpr int kStealColumn = 8;
    for (int column = 0; column < kStealColumn; ++column) words >> value;
    if (words) ticks += value;
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::string percent(double share) {
  return absl::StrCat(static_cast<int>(std::lround(100 * share)), "%");
}

}  // namespace

CpuTimes read_cpu_times(const std::string& proc) {
  CpuTimes times;
  std::error_code error;
  for (fs::directory_iterator task(proc + "/self/task", error), end; !error && task != end;
       task.increment(error)) {
    std::ifstream file(task->path() / "schedstat");
    double run = 0, wait = 0;
    if (!(file >> run >> wait)) continue;
    times.run += run * kNanosecond;
    times.wait += wait * kNanosecond;
  }
  times.stolen = read_stolen(proc + "/stat");
  return times;
}

bool ContentionWatch::counts() {
  std::string found = disturbance_between(before_, read_cpu_times());
  if (found.empty()) return true;
  disturbance_ = std::move(found);
  return false;
}

std::string disturbance_between(const CpuTimes& before, const CpuTimes& after) {
  const double run = after.run - before.run, wait = after.wait - before.wait;
  const double stolen = after.stolen - before.stolen;
  // One tick of /proc/stat may have begun before the measurement.
  const double tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  if (run + wait > 0 && wait / (run + wait) > kWaitShareMax) {
    return absl::StrCat("its threads waited ", percent(wait / (run + wait)),
                        " of the time for a CPU that other processes used");
  }
  if (run > 0 && stolen - tick > kStolenShareMax * run)
    return absl::StrCat("the host of this virtual machine took ", percent(stolen / run),
                        " of the CPU time");
  return "";
}

}  // namespace muster::trainer
