// Detects that other processes used the CPUs while this process measured something: the kernel
// counts the time in which a thread could run and had no CPU, and a virtual machine the time in
// which its host ran another one.
#pragma once

#include <string>

namespace muster::trainer {

// Counters of this process and its CPUs at one moment, in seconds.
struct CpuTimes {
  double run = 0;     // all threads: time on a CPU
  double wait = 0;    // all threads: time ready to run, without a CPU
  double stolen = 0;  // the CPUs that this process may use: time that the hypervisor took
};

// Reads /proc/self/task/*/schedstat and /proc/stat below `proc`. Counters that the kernel lacks are
// 0.
CpuTimes read_cpu_times(const std::string& proc = "/proc");

// Returns why a measurement between two moments is disturbed, such as "its threads waited 40% of
// the time for a CPU that other processes used"; empty if it is not. Pure.
std::string disturbance_between(const CpuTimes& before, const CpuTimes& after);

// Judges short measurements of this process. Not thread-safe.
class ContentionWatch {
 public:
  // Begins a measurement.
  void begin() { before_ = read_cpu_times(); }
  // Ends it. Returns whether it was undisturbed.
  bool counts();
  // Returns the newest disturbance; empty if there was none.
  const std::string& disturbance() const { return disturbance_; }

 private:
  CpuTimes before_;
  std::string disturbance_;
};

}  // namespace muster::trainer
