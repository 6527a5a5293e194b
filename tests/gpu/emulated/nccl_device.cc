#include "tests/gpu/nccl_device.h"

#include "tests/gpu/emulated/cuda_runtime.h"
#include "tests/unit/trainer_core/comm/fake_nccl.h"
#include "trainer_core/ops/backend.h"

namespace muster::trainer {

absl::StatusOr<std::shared_ptr<const NcclApi>> nccl_of_device() {
  emulated::properties().devices = 2;
  static const auto device = gpu_backend({}).value();
  static const FakeNccl nccl(device->memory(), [](void* stream, std::function<void()> work) {
    emulated::enqueue(static_cast<cudaStream_t>(stream), {std::move(work)});
  });
  return nccl.api();
}

}  // namespace muster::trainer
