// Deep checks of a device and of storage: slower than startup/node_check.h, so they run only on
// idle nodes. Each test verifies what the hardware returns, and measures how fast it does so.
//
//   gemm        GEMMs of small integers, whose result is exact in any order of additions. Each
//               element of the last GEMM of every batch is compared with the correct value
//   memory      copies within the device's memory; on a GPU, a part of its memory is filled with a
//               pattern and read back
//   copy        copies of the pattern from the host to a GPU and back
//   storage     a file is written, synced and read back
//
// The tests block. They can hang with their device or file system, so the caller must enforce a
// deadline. Called on the backend's thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

#include "trainer_core/ops/backend.h"

namespace muster::trainer {

// A measured property of a node; larger is better.
struct DeepMeasurement {
  std::string name;  // "gemm"
  double value = 0;
  std::string unit;  // "TFLOP/s"
};
using DeepMeasurements = std::vector<DeepMeasurement>;

// Returns the median. Requires values.
double median_of_measured(std::vector<double> values);

// Tests GEMM, memory and copies of the device for about `seconds` each. Appends the measurements.
// Returns DataLoss if a result is wrong.
absl::Status test_device(Backend& backend, double seconds, DeepMeasurements& measured);

// Writes, syncs and reads a file of `bytes` in `folder` for about `seconds`, at least once. Returns
// DataLoss if other bytes are returned than were written, or the error of the file system.
absl::Status test_storage(const std::string& folder, size_t bytes, double seconds,
                          DeepMeasurements& measured);

// Returns an error if the number of `devices` that CUDA finds is not that of the GPUs that the
// worker names, separated by commas: CUDA hides a GPU that it cannot use, and all that are named
// after it. `no_device`: why there is no device. A build without CUDA (Unimplemented) tests the
// CPUs of a node with GPUs.
absl::Status check_visible_gpus(std::string_view gpus, int devices, const absl::Status& no_device);

// Returns the hardware that decides which nodes are comparable: "2 x NVIDIA H200", or "16 threads,
// Intel(R) Xeon(R) …".
std::string describe_kind(const Backend& backend, int devices);

}  // namespace muster::trainer
