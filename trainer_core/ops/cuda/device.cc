// Finds a device, and allocates its memory.
#include <cuda_runtime.h>

#include <string>
#include <string_view>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/ops/cuda/device/cuda.h"
#include "trainer_core/ops/cuda/device/cuda_check.h"
#include "trainer_core/ops/cuda/device/kernels.h"

namespace muster::trainer {
namespace {

// The oldest capability that kernels are compiled for: the first with bf16.
constexpr int kCapabilityMin = 80;

// "13.0"
std::string version_text(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// FailedPrecondition, because another attempt on this node would fail as well, whereas another node
// may succeed.
absl::Status not_here(const std::string& why) { return absl::FailedPreconditionError(why); }

absl::Status no_device(cudaError_t error, int driver) {
  if (driver == 0)
    return not_here("no NVIDIA driver is loaded here: install one, or train with hardware=cpu");
  if (error == cudaErrorInsufficientDriver)
    return not_here(absl::StrCat("the NVIDIA driver supports CUDA up to ", version_text(driver),
                                 ", this build needs ", version_text(CUDART_VERSION / 1000 * 1000),
                                 " or newer: update the driver"));
  if (error == cudaErrorNoDevice)
    return not_here(
        "this process sees no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES, or train with "
        "hardware=cpu");
  const std::string_view what_to_do = cuda::advice(error);
  return absl::UnavailableError(
      absl::StrCat(cudaGetErrorName(error), ": ", cudaGetErrorString(error),
                   av(what_to_do.empty() ? "; check nvidia-smi" : what_to_do)));
}

// Allocates memory outside a plan: scratch, tests and benchmarks.
void* allocated(size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  size_t free = 0, total = 0;
  if (error == cudaErrorMemoryAllocation) (void)cudaMemGetInfo(&free, &total);
  MUSTER_CHECK(error != cudaErrorMemoryAllocation)
      << "out of memory: the GPU has refused " << (bytes >> 20) << " MiB, of " << (total >> 20)
      << " MiB " << (free >> 20) << " are free: see nvidia-smi for other processes";
  MUSTER_CUDA_CHECK(error);
  return data;
}

}  // namespace

absl::StatusOr<CudaDevice> find_cuda_device(int index) {
  int driver = 0, count = 0;
  (void)cudaDriverGetVersion(&driver);
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess)
    return no_device(error, driver);
  if (index < 0 || index >= count)
    return not_here(absl::StrCat("there is no GPU ", index, ": this process sees ", count,
                                 "; check CUDA_VISIBLE_DEVICES"));
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess)
    return no_device(error, driver);
  CudaDevice device{.index = index,
                    .name = properties.name,
                    .capability = 10 * properties.major + properties.minor,
                    .memory_bytes = properties.totalGlobalMem,
                    .multiprocessors = properties.multiProcessorCount,
                    .driver_version = driver};
  if (device.capability < kCapabilityMin)
    return absl::UnimplementedError(absl::StrCat(
        device.name, " has compute capability ", properties.major, ".", properties.minor,
        "; at least ", kCapabilityMin / 10, ".0 is needed (A100, H100 and newer)"));
  if (const cudaError_t error = cudaSetDevice(index); error != cudaSuccess)
    return no_device(error, driver);
  const cudaError_t error = cuda::find_code();
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction)
    return absl::UnimplementedError(
        absl::StrCat("this build has no code for ", device.name, " (compute capability ",
                     properties.major, ".", properties.minor, "; ", cudaGetErrorName(error),
                     "): build with -DMUSTER_CUDA_ARCHITECTURES=", device.capability));
  if (error != cudaSuccess) return no_device(error, driver);
  return device;
}

CudaMemory::CudaMemory(size_t bytes) : CudaMemory(bytes == 0 ? nullptr : allocated(bytes), bytes) {}

CudaMemory::CudaMemory(void* data, size_t bytes) : data_(data), bytes_(bytes) {
  if (data_ == nullptr) return;
  MUSTER_CUDA_CHECK(cudaMemset(data_, 0, bytes_));
  // Backends' streams do not wait for the default stream, which cudaMemset uses.
  MUSTER_CUDA_CHECK(cudaDeviceSynchronize());
}

std::shared_ptr<CudaMemory> CudaMemory::try_allocate(size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) return nullptr;
  MUSTER_CUDA_CHECK(error);
  return std::shared_ptr<CudaMemory>(new CudaMemory(data, bytes));
}

CudaMemory::~CudaMemory() {
  if (data_ != nullptr) (void)cudaFree(data_);
}

}  // namespace muster::trainer
