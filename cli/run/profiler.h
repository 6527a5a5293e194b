// Nsight Systems around a command of ours. What runs below it is profiled, too.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

namespace muster::cli {

// What nsys records: all of what a command does, or from cudaProfilerStart() to cudaProfilerStop() (trainer_core/report/profile_window.h).
enum class NsysCapture { kAll, kSteps };

// Puts nsys in front of `command`, which then reports into `report`.nsys-rep. NotFound where it is not in PATH.
absl::Status put_under_nsys(NsysCapture capture, const std::string& report,
                            std::vector<std::string>& command);

// Becomes `command line of this process, under nsys`; returns where that cannot be: this process runs under nsys already (ok), or there is
// none, whose error says so.
absl::Status restart_under_nsys(const std::string& report);

}  // namespace muster::cli
