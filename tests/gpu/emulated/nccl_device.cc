#include "tests/gpu/nccl_device.h"

#include <utility>

#include "tests/gpu/emulated/cuda_runtime.h"
#include "tests/unit/trainer_core/comm/fake_nccl.h"
#include "trainer_core/ops/backend.h"

namespace muster::trainer {
namespace {

class TwoDevices {
 public:
  TwoDevices() = default;
  ~TwoDevices() { emulated::properties().devices = before_; }
  TwoDevices(const TwoDevices&) = delete;
  TwoDevices& operator=(const TwoDevices&) = delete;

  std::shared_ptr<const NcclApi> api() const { return api_; }

 private:
  const int before_ = std::exchange(emulated::properties().devices, 2);
  const std::shared_ptr<Backend> device_ = gpu_backend({}).value();
  const FakeNccl nccl_{device_->memory(), [](void* stream, std::function<void()> work) {
                         emulated::enqueue(static_cast<cudaStream_t>(stream), {std::move(work)});
                       }};
  const std::shared_ptr<const NcclApi> api_ = nccl_.api();
};

}  // namespace

absl::StatusOr<std::shared_ptr<const NcclApi>> nccl_of_device() {
  const auto devices = std::make_shared<TwoDevices>();
  return std::shared_ptr<const NcclApi>(devices, devices->api().get());
}

}  // namespace muster::trainer
