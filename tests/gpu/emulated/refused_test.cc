// The emulated device refuses what a device refuses: kernels and copies that a CPU would execute.
#include <vector>

#include "tests/gpu/both_backends.h"
#include "tests/gpu/emulated/cuda_runtime.h"

namespace muster::trainer {
namespace {

constexpr size_t kBytes = 1024;

void write(float* x, int64_t /*number*/) { x[0] = 1; }

class Refused : public testing::Test {
 protected:
  Refused() {
    emulated::properties().devices = 2;
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~Refused() override {
    (void)cudaSetDevice(0);
    (void)cudaStreamDestroy(stream_);
    emulated::properties() = {};
  }
  cudaError_t launch(float* x, size_t shared_bytes = 0, dim3 grid = 1) const {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = 32;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream_;
    return cudaLaunchKernelEx(&config, write, x, int64_t{3});
  }

  cudaStream_t stream_ = nullptr;
  CudaMemory memory_{kBytes};
  float* const numbers_ = static_cast<float*>(memory_.data());
};

TEST_F(Refused, LaunchesOnAnotherDevicesStream) {
  EXPECT_EQ(launch(numbers_), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(launch(numbers_), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
}

TEST_F(Refused, EventsOfAnotherDevice) {
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventBlockingSync), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, stream_), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(Refused, UnrequestedSharedMemory) {
  constexpr int kAsked = 64 << 10;
  EXPECT_EQ(launch(numbers_, 48 << 10), cudaSuccess);
  EXPECT_EQ(launch(numbers_, kAsked), cudaErrorInvalidValue);
  ASSERT_EQ(cudaFuncSetAttribute(write, cudaFuncAttributeMaxDynamicSharedMemorySize, kAsked),
            cudaSuccess);
  EXPECT_EQ(launch(numbers_, kAsked), cudaSuccess);
  EXPECT_EQ(launch(numbers_, kAsked + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(write, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10),
            cudaErrorInvalidValue);
}

TEST_F(Refused, GridsBeyondTheLimits) {
  EXPECT_EQ(launch(numbers_, 0, dim3(1, 65'536)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(numbers_, 0, dim3(1, 1, 65'536)), cudaErrorInvalidConfiguration);
}

TEST_F(Refused, HostMemory) {
  std::vector<float> host(kBytes);
  EXPECT_DEATH(launch(host.data()), "memory of the host's that the device does not have");
  void* locked = nullptr;
  ASSERT_EQ(cudaHostAlloc(&locked, kBytes, cudaHostAllocMapped), cudaSuccess);
  EXPECT_EQ(launch(static_cast<float*>(locked)), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(locked), cudaSuccess);
}

TEST_F(Refused, MemoryOfAnotherDevice) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const CudaMemory other(kBytes);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_DEATH(launch(static_cast<float*>(other.data())), "memory of another device");
}

TEST_F(Refused, CopiesInTheWrongDirection) {
  std::vector<char> host(kBytes);
  const auto copy = [&](void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, stream_);
  };
  EXPECT_EQ(copy(numbers_, host.data(), kBytes, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(copy(host.data(), numbers_, kBytes, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(copy(numbers_, host.data(), kBytes, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(copy(host.data(), numbers_, kBytes, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(numbers_, host.data(), 2 * kBytes, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

// A float at an address that is a multiple of two, which this CPU would write.
TEST_F(Refused, MisalignedAccesses) {
  void* const between = static_cast<char*>(memory_.data()) + 2;
  const Tensor x = Tensor::of(DType::kF32, between, {4});
  EXPECT_DEATH(
      {
        backends().gpu->fill(x, 1);
        backends().gpu->synchronize();
      },
      "");
}

}  // namespace
}  // namespace muster::trainer
