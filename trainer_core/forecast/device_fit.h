// Fits the model of a device (step_cost.h) to measurements: peaks, the efficiency curves of GEMMs
// and attention, the share of the memory bandwidth of each operation, and the links. Pure
// arithmetic.
#pragma once

#include <string>
#include <vector>

#include "trainer_core/forecast/step_cost.h"
#include "trainer_core/forecast/step_trace.h"

namespace muster::trainer {

// A piece of work and the time that it took, without the overhead of a call.
struct MeasuredWork {
  TracedWork work;
  double seconds = 0;
};

// An all-reduce of `bytes` bytes.
struct MeasuredReduction {
  double bytes = 0;
  double seconds = 0;
};

// The measurements of a device. A value of 0 and an empty list were not measured.
struct DeviceSamples {
  double bf16_tflops = 0, fp32_tflops = 0;  // the highest rates of GEMMs, or the data sheet's
  double memory_gb_s = 0;                   // bandwidth of a copy: bytes read and written
  double host_gb_s = 0;
  double multiprocessors = 0;
  double kernel_seconds = 0;  // duration of an operation that does nothing
  std::vector<MeasuredWork> works = {};
  int ranks = 1;  // the ranks that took part in the reductions
  std::vector<MeasuredReduction> reductions = {};
};

// Returns the device and its constants for which the forecast of the samples is best: the relative
// errors, weighted by time, are the smallest (least squares). Constants that the samples do not
// determine have their defaults. A curve that is faster than the measured peak raises the peak.
// Requires positive peaks and bandwidths.
StepMachine fit_device(const DeviceSamples& samples);

}  // namespace muster::trainer
