// Measures the peak rate of a backend's GEMMs, the denominator of MFU (model FLOPs utilisation) for
// a device without a known peak rate.
#pragma once

#include <functional>

#include "trainer_core/base/tensor.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// Judges each GEMM of a measurement: `begin` is called before it, and `counts` after it returns
// whether the GEMM had the machine for itself.
struct GemmWatch {
  std::function<void()> begin;
  std::function<bool()> counts;
};

// Returns the highest rate of a few measurements, in TFLOP/s, with the backend's own threads. A
// measurement is one GEMM of 512 x 512 x 512, or as many as take 2 ms. `dtype`: fp32 or bf16. Takes
// some tens of milliseconds, even on a slow machine. Returns 0 if `watch` has accepted none; null:
// all count.
double measure_gemm_peak_tflops(Ops& ops, DType dtype, const GemmWatch* watch = nullptr);
// Does the same on a device, with GEMMs that take some milliseconds or whose three matrices fill
// `room`. Overwrites `room`. Takes a second on a slow device.
double measure_gemm_peak_tflops(Ops& ops, DType dtype, const Tensor& room);

}  // namespace muster::trainer
