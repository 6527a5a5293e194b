// The denominator of MFU where no vendor's figure exists: what the backend's matrix product
// reaches.
#pragma once

#include "trainer_core/base/tensor.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// Best of a few products of matrices of `dtype`, fp32 or bf16, of 512 x 512 x 512 or as many as take 2 ms: TFLOP/s with the backend's own
// threads. Takes some tens of milliseconds, however slow the machine is.
double measure_gemm_peak_tflops(Ops& ops, DType dtype);
// Of a device: products so large that one takes some milliseconds, or that three matrices fill `room`, whose numbers are lost. A device
// that is slow takes a second.
double measure_gemm_peak_tflops(Ops& ops, DType dtype, const Tensor& room);

}  // namespace muster::trainer
