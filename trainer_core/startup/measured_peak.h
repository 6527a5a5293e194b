// The measured peak throughput of a device's GEMMs. It is measured once per machine and stored in a
// file: if every attempt measured it again, other load on the machine would change the result, and
// with it the MFU.
#pragma once

#include <functional>
#include <string>

#include "trainer_core/base/train_config.h"
#include "trainer_core/ops/backend.h"

namespace muster::trainer {

// Returns the path of the file with the peaks, gemm-peaks.json in user_cache_folder(); empty if
// there is no such folder.
std::string peaks_path();

// Returns the key of a peak in the file. It consists of everything on which the peak depends: the
// machine, the device or CPU model, the number of threads, and the type. `tf32`: whether the
// device's fp32 GEMMs use TF32.
std::string peak_key(const Backend& backend, DType dtype, bool tf32 = false);

// One measurement of a peak.
struct PeakRound {
  double tflops = 0;        // TFLOP/s
  std::string disturbance;  // why it does not count (cpu_contention.h); empty: it counts
};

// The peak of one key in the file. Several processes may use the file at once. If the file cannot
// be used, the peak is stored in this object only.
class MeasuredPeak {
 public:
  MeasuredPeak(std::string path, std::string key) : path_(std::move(path)), key_(std::move(key)) {}

  // Returns the stored peak in TFLOP/s; 0 if there is none.
  double stored();
  // Returns the stored peak in TFLOP/s; if there is none, measures and stores it: the highest round
  // without a disturbance, once another such round confirms it. Only one process of the machine
  // measures at a time. Returns 0, and stores nothing, if no two rounds agree: a later run measures
  // again. A stored peak never changes.
  double get(const std::function<PeakRound()>& measure);
  // Returns a sentence with the reason for which get() has returned 0; empty otherwise.
  const std::string& why_unknown() const { return why_unknown_; }

 private:
  double load() const;
  void store(double tflops) const;

  const std::string path_;
  const std::string key_;
  double tflops_ = 0;
  std::string why_unknown_;
};

}  // namespace muster::trainer
