// MUSTER_CUDA_CHECK(call): a call of the CUDA runtime that must succeed. When it does not, the process ends with the call, CUDA's name
// and text of the error, and the worker restarts the rank.
#pragma once

#include <cuda_runtime.h>

#include "trainer_core/base/check.h"

namespace muster::trainer::cuda {

// An error of an earlier kernel comes out of whatever call is next: the text says so.
inline void check(cudaError_t error, const char* call) {
  MUSTER_CHECK(error == cudaSuccess)
      << call << " ends with " << cudaGetErrorName(error) << ": " << cudaGetErrorString(error)
      << " (of this call, or of a kernel that was started before it)";
}

}  // namespace muster::trainer::cuda

#define MUSTER_CUDA_CHECK(call) ::muster::trainer::cuda::check((call), #call)
