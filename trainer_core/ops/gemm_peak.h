// Measures the peak rate of a backend's GEMMs, the denominator of MFU (model FLOPs utilisation) for
// a device without a known peak rate.
#pragma once

#include "trainer_core/base/tensor.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// Returns the highest rate of a few measurements, in TFLOP/s, with the backend's own threads. A
// measurement is one GEMM of 512 x 512 x 512, or as many as take 2 ms. `dtype`: fp32 or bf16. Takes
// some tens of milliseconds, even on a slow machine.
double measure_gemm_peak_tflops(Ops& ops, DType dtype);
// Does the same on a device, with GEMMs that take some milliseconds or whose three matrices fill
// `room`. Overwrites `room`. Takes a second on a slow device.
double measure_gemm_peak_tflops(Ops& ops, DType dtype, const Tensor& room);

}  // namespace muster::trainer
