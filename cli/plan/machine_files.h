// The files of `muster bench device`: a topology (jobspec/files/topology.h) and the calibration of
// the trainer on it (jobspec/files/calibration.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace muster::cli {

struct MachineFiles {
  std::string topology, calibration;  // contents
  int steps = 0;                      // measured as a whole
  double error_percent = 0;           // the largest error of their forecasts
};

// Values that the trainer does not measure.
struct MachineNames {
  int32_t devices = 1;  // the cores or GPUs of the machine
  // The model of a CPU. A GPU has the name that its driver reports.
  std::string device = {};
  // The speed of a CPU's bfloat16 relative to float32.
  std::optional<double> bfloat16_speed = {};
};

// Returns the model of the first processor in /proc/cpuinfo; "CPU" if the kernel does not state it.
std::string cpu_model(const std::string& cpuinfo);

// Returns the files for the output of `muster-trainer bench-device`. The devices of a CPU are its
// cores; the rates of one are those of one thread of a rank. Returns Internal if the output lacks a
// value. Pure.
absl::StatusOr<MachineFiles> machine_files(const nlohmann::json& measured,
                                           const MachineNames& names);

// The paths of both files in a folder of configs.
struct MachinePaths {
  std::string topology, calibration;
};
MachinePaths machine_paths(const std::string& folder, const std::string& name);

// Returns OK if a measurement may replace these files: each of them does not exist, or an earlier
// measurement has written it and its keys can be read. Otherwise InvalidArgument, because Muster's
// own files and those that users write must not be lost.
absl::Status check_replaceable(const MachinePaths& paths);

// Adds to `files` the keys of the earlier topology, if there is one, that the new topology lacks:
// users add speeds of networks, for example. Keys of another device or number of cores are not
// added. Returns a sentence about these keys; empty if there are none.
std::string keep_added_keys(const MachinePaths& paths, MachineFiles& files);

// Writes both files, each atomically, creates their folders, and reads the files as `muster plan`
// does. After an error both files have their old contents, or do not exist if they did not.
absl::Status write_machine_files(const MachineFiles& files, const MachinePaths& paths);

}  // namespace muster::cli
