// The measured GEMM peak of a device, which is measured once per machine and kept: a measurement in
// every attempt would differ with what else the machine does, and MFU with it.
#pragma once

#include <functional>
#include <string>

#include "trainer_core/base/train_config.h"
#include "trainer_core/ops/backend.h"

namespace muster::trainer {

// The file of the peaks of this user's machines, gemm-peaks.json in user_cache_folder(); empty
// without such a folder.
std::string peaks_path();

// Returns what a peak depends on: the machine, the device or CPU model, the threads, the type.
// `tf32`: a device's fp32 GEMMs use TF32.
std::string peak_key(const Backend& backend, DType dtype, bool tf32 = false);

// A file of peaks by key. Several processes may use it at once. Without a usable file a value lasts
// as long as the object.
class MeasuredPeak {
 public:
  MeasuredPeak(std::string path, std::string key) : path_(std::move(path)), key_(std::move(key)) {}

  // Returns the kept peak in TFLOP/s; 0: there is none.
  double kept();
  // Returns the kept peak in TFLOP/s, or measures and keeps it. `measure` returns the peak of one
  // round; rounds that the machine disturbs are repeated. Only one process of the machine measures
  // at a time. 0: `measure` has no result.
  double get(const std::function<double()>& measure);
  // Raises the kept peak to a throughput that a step has reached: it was measured too low. Returns
  // the peak.
  double raise(double tflops);

 private:
  double load() const;
  void store(double tflops) const;

  const std::string path_;
  const std::string key_;
  double tflops_ = 0;
};

}  // namespace muster::trainer
