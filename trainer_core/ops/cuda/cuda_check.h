// MUSTER_CUDA_CHECK(call): a call of the CUDA runtime that must succeed. When it does not, the process ends with the call, CUDA's name
// and text of the error, and the worker restarts the rank. But what a thread captures as a graph has no effect, and may fail.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "trainer_core/base/check.h"

namespace muster::trainer::cuda {

// Whether the calling thread captures a graph (graphs.h): then the error is the capture's, which remembers the first, and nobody else's.
bool fails_capture(const std::string& error);

// What somebody who reads the error is to do.
inline const char* advice(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
      return "; the GPU's memory is damaged: take the node out of service (nvidia-smi -q -d "
             "ECC,ROW_REMAPPER)";
    case cudaErrorHardwareStackError:
    case cudaErrorUnknown:
      return "; the GPU may be lost: look for Xid in the kernel's log, and at nvidia-smi";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
      return "; a fault of a kernel's, or of the GPU: look for Xid in the kernel's log, and run "
             "compute-sanitizer";
    case cudaErrorMemoryAllocation:
      return "; NCCL, libraries or another process have taken what the plan left of the GPU's "
             "memory";
    case cudaErrorDevicesUnavailable:
      return "; another process has the GPU for itself (nvidia-smi -q -d COMPUTE)";
    case cudaErrorSystemNotReady:
      return "; the node's fabric manager does not run";
    default:
      return "";
  }
}

// An error of an earlier kernel comes out of whatever call is next: the text says so.
inline void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  const std::string what = std::string(call) + " ends with " + cudaGetErrorName(error) + ": " +
                           cudaGetErrorString(error);
  MUSTER_CHECK(fails_capture(what))
      << what << " (of this call, or of a kernel that was started before it)" << advice(error);
}

}  // namespace muster::trainer::cuda

#define MUSTER_CUDA_CHECK(call) ::muster::trainer::cuda::check((call), #call)
