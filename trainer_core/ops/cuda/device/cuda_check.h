// MUSTER_CUDA_CHECK(call) checks a call of the CUDA runtime that must succeed. If the call fails,
// the process ends with a message that has the call and CUDA's name and text of the error; Muster
// then restarts the job's ranks. The exception is a thread that captures a graph: a failed call
// then only makes the capture fail.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "trainer_core/base/check.h"

namespace muster::trainer::cuda {

// Returns whether the calling thread captures a graph (graphs.h). If so, the capture fails with
// `error`, or with its first error.
bool fails_capture(const std::string& error);

// Returns the remedy for an error, to append to the error's message.
inline const char* advice(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
      return "; the GPU's memory is damaged: take the node out of service (nvidia-smi -q -d "
             "ECC,ROW_REMAPPER)";
    case cudaErrorHardwareStackError:
    case cudaErrorUnknown:
      return "; the GPU may be lost: search the kernel's log for Xid, and check nvidia-smi";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
      return "; a bug in a GPU kernel, or a fault of the GPU: search the kernel's log for Xid, "
             "and run "
             "compute-sanitizer";
    case cudaErrorMemoryAllocation:
      return "; NCCL, libraries or other processes use the memory that the plan leaves on the "
             "GPU";
    case cudaErrorDevicesUnavailable:
      return "; another process has exclusive use of the GPU (nvidia-smi -q -d COMPUTE)";
    case cudaErrorSystemNotReady:
      return "; the node's fabric manager does not run";
    default:
      return "";
  }
}

// Ends the process if `error` is an error and the thread does not capture. The message mentions
// earlier kernels, because the error of a kernel appears in a later call.
inline void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  const std::string what = std::string(call) + " ends with " + cudaGetErrorName(error) + ": " +
                           cudaGetErrorString(error);
  MUSTER_CHECK(fails_capture(what))
      << what << " (of this call, or of a kernel that was started before it)" << advice(error);
}

}  // namespace muster::trainer::cuda

#define MUSTER_CUDA_CHECK(call) ::muster::trainer::cuda::check((call), #call)
