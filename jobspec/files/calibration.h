// Calibrations: the shares of a device that a program attains, fitted to measured steps by
// bench/step_times.py. Each is a file configs/calibration/PROGRAM-TOPOLOGY.yml. Keys of a file:
//
//   device         the device on which the steps were measured
//   error_percent  the largest error of a forecast of these steps
//   steps          the number of measured steps
//   fitted_rows    the steps to which the constants were fitted; for readers
//   and the constants of trainer_core/forecast/step_cost.h, such as gemm_fraction
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::jobspec {

struct Calibration {
  std::string program;   // "muster", "maxtext"
  std::string topology;  // "h200"
  std::string device;
  double error_percent = 0;
  int64_t steps = 0;
  std::map<std::string, double> constants;
};

// Reads a file. Returns NotFound if there is none, and InvalidArgument with the file, the line, the
// key and its value if a value is not a number.
absl::StatusOr<Calibration> read_calibration(const std::string& path);

// Returns the calibration of a program for a topology or, if there is none, for `instead` (a
// topology with the same type of device). Searches `folders`, in their order. Returns NotFound,
// with the nearest names, if there is neither.
absl::StatusOr<Calibration> find_calibration(std::string_view program, std::string_view topology,
                                             std::string_view instead,
                                             const std::vector<std::string>& folders);

}  // namespace muster::jobspec
