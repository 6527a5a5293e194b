// Runs a command under Nsight Systems. Its child processes are profiled, too.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

namespace muster::cli {

// The recorded span: the whole command, or from cudaProfilerStart() to cudaProfilerStop()
// (trainer_core/report/profile_window.h).
enum class NsysCapture { kAll, kSteps };

// Puts nsys in front of `command`, which then reports into `report`.nsys-rep. NotFound if nsys is
// not in PATH.
absl::Status put_under_nsys(NsysCapture capture, const std::string& report,
                            std::vector<std::string>& command);

// Executes this process's command line again under nsys. Returns ok if this process runs under nsys
// already, or an error if nsys is not installed.
absl::Status restart_under_nsys(const std::string& report);

}  // namespace muster::cli
