// Runs a command under the profiler Nsight Systems (nsys), which also profiles the command's child
// processes.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

namespace muster::cli {

// The recorded span: the whole command, or from cudaProfilerStart() to cudaProfilerStop()
// (trainer_core/report/profile_window.h).
enum class NsysCapture { kAll, kSteps };

// Puts nsys in front of `command`; nsys then writes the profile to `report`.nsys-rep. Returns
// NotFound if nsys is not in PATH.
absl::Status put_under_nsys(NsysCapture capture, const std::string& report,
                            std::vector<std::string>& command);

// Executes this process's command line again under nsys, and then does not return. Returns OK if
// this process already runs under nsys, and an error if nsys is not installed.
absl::Status restart_under_nsys(const std::string& report);

}  // namespace muster::cli
