#include "tests/gpu/gpu_device.h"

#include <mutex>
#include <utility>

#include "tests/unit/trainer_core/train_helpers.h"

namespace muster::trainer {
namespace {

struct Devices {
  std::mutex mutex;
  int on_cpu = 0;
  bool apart = false;
  int next = 0;
  std::vector<std::shared_ptr<Backend>> made;
  NcclOptions nccl;
};
Devices& devices() {
  static Devices all;
  return all;
}

}  // namespace

OnCpu::OnCpu() { ++devices().on_cpu; }
OnCpu::~OnCpu() { --devices().on_cpu; }

OnNccl::OnNccl(NcclOptions options) { devices().nccl = std::move(options); }
OnNccl::~OnNccl() { devices().nccl = {}; }

OnOwnGpus::OnOwnGpus() { devices().apart = true; }
OnOwnGpus::~OnOwnGpus() { devices().apart = false; }

std::vector<std::shared_ptr<Backend>> take_devices() {
  const std::lock_guard lock(devices().mutex);
  return std::exchange(devices().made, {});
}

NcclOptions nccl_of_tests() { return devices().on_cpu > 0 ? NcclOptions() : devices().nccl; }

std::shared_ptr<Backend> device_of_tests() {
  if (devices().on_cpu > 0) return nullptr;
  std::unique_lock lock(devices().mutex);
  const int rank_of_node = devices().apart ? devices().next++ : 0;
  lock.unlock();
  auto device =
      gpu_backend({.rank_of_node = rank_of_node, .scratch_bytes = size_t{4} << 20}).value();
  lock.lock();
  constexpr size_t kRanksMax = 8;  // maximum ranks of a test's run
  auto& made = devices().made;
  if (made.size() == kRanksMax) made.erase(made.begin());
  made.push_back(device);
  return device;
}

}  // namespace muster::trainer
