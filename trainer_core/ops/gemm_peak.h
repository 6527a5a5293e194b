// The denominator of MFU if no vendor figure exists: the measured peak of the backend's GEMM.
#pragma once

#include "trainer_core/base/tensor.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// Returns the best of a few GEMMs of `dtype`, fp32 or bf16, of 512 x 512 x 512 or as many as take 2
// ms: TFLOP/s with the backend's own threads. Takes some tens of milliseconds, however slow the
// machine is.
double measure_gemm_peak_tflops(Ops& ops, DType dtype);
// The same on a device: GEMMs large enough to take some milliseconds, or whose three matrices fill
// `room`, which is overwritten. A slow device takes a second.
double measure_gemm_peak_tflops(Ops& ops, DType dtype, const Tensor& room);

}  // namespace muster::trainer
