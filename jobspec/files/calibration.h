// Calibrations: constants that state which fraction of a device's peak speeds a program attains.
// bench/step_times.py fits them to measured steps. Each calibration is a file
// configs/calibration/PROGRAM-TOPOLOGY.yml. Keys of a file:
//
//   device         the device on which the steps were measured
//   error_percent  the largest error of a forecast of these steps
//   steps          the number of measured steps
//   fitted         the number of steps to which the constants were fitted
//   devices        the largest number of devices on which a step was measured
//   fitted_rows    the steps to which the constants were fitted; for readers
//   and the constants of kCalibrationConstants, and kernel_share_OPERATION
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::jobspec {

// A constant of a calibration, with its allowed range. The names and ranges are those of
// trainer_core/forecast/step_cost.h.
struct CalibrationConstant {
  std::string_view name;
  double min = 0, max = 1;
};
constexpr std::array<CalibrationConstant, 22> kCalibrationConstants = {{
    {"gemm_fraction", 0.01, 1},
    {"gemm_fp8_fraction", 0.01, 1},
    {"gemm_depth", 0, 10'000},
    {"attention_forward_fraction", 0.01, 1},
    {"attention_backward_fraction", 0.01, 1},
    {"attention_length", 0, 10'000},
    {"attention_fused", 0, 1},
    {"memory_fraction", 0.01, 1},
    {"memory_passes", 0, 10},
    {"quantize_passes", 0, 10},
    {"kernel_us", 0, 1000},
    {"step_ms", 0, 100'000},
    {"node_link_fraction", 0.01, 1},
    {"network_link_fraction", 0.01, 1},
    {"overlap_slowdown", 0, 1},
    {"inline_overlap", 0, 1},
    {"host_copy_overlap", 0, 1},
    {"reduction_overlap", 0, 1},
    {"sequence_parallel", 0, 1},
    {"whole_recomputation", 0, 1},
    {"one_queue", 0, 1},
    {"straggling", 0, 1},
}};

// The constants kernel_share_OPERATION: the bandwidth that an operation attains, relative to that
// of the device's memory. The trainer checks the name of the operation.
constexpr CalibrationConstant kKernelShares = {"kernel_share_", 1e-4, 1000};

struct Calibration {
  std::string program;   // "muster", "maxtext"
  std::string topology;  // "h200"
  std::string device;
  double error_percent = 0;
  int64_t steps = 0;
  int64_t fitted = 0;
  int64_t devices = 0;  // 0: the file does not state them
  std::map<std::string, double> constants;
};

// Reads a file. Returns NotFound if there is none, and InvalidArgument with the file, the line, the
// key, its value and the allowed range if the key is unknown or the value is not in the range.
absl::StatusOr<Calibration> read_calibration(const std::string& path);

// Returns the calibration of a program for a topology or, if there is none, for `instead` (a
// topology with the same type of device). Searches `folders`, in their order. Returns NotFound if
// there is neither.
absl::StatusOr<Calibration> find_calibration(std::string_view program, std::string_view topology,
                                             std::string_view instead,
                                             const std::vector<std::string>& folders);

}  // namespace muster::jobspec
