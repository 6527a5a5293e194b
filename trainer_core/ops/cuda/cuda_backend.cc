// The GPU as a Device of the trainer. In addition to the backend's stream, each thread copies on a
// stream of its own.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/ops/backend.h"
#include "trainer_core/ops/cuda/device/cuda.h"
#include "trainer_core/ops/cuda/device/cuda_check.h"
#include "trainer_core/ops/cuda/device/pinned_host.h"
#include "trainer_core/ops/cuda/device/ranges.h"
#include "trainer_core/ops/cuda/device/stream.h"

// The runtime has both functions, but the wheels that deploy/install-cuda.sh installs lack their
// header (cuda_profiler_api.h).
extern "C" cudaError_t cudaProfilerStart();
extern "C" cudaError_t cudaProfilerStop();

namespace muster::trainer {
namespace {

// Counts the memory allocated on the device. Shared by all allocations, so that it outlives them.
class Allocations {
 public:
  void add(const void* begin, size_t bytes) {
    const std::lock_guard lock(mutex_);
    all_[begin] = bytes;
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  void remove(const void* begin) {
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(begin);
    now_ -= found->second;
    all_.erase(found);
  }
  bool hold(const void* address) const {
    const std::lock_guard lock(mutex_);
    const auto behind = all_.upper_bound(address);
    if (behind == all_.begin()) return false;
    const auto& [begin, bytes] = *std::prev(behind);
    return std::less<>()(address,
                         static_cast<const void*>(static_cast<const char*>(begin) + bytes));
  }
  size_t peak() const {
    const std::lock_guard lock(mutex_);
    return peak_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<const void*, size_t, std::less<>> all_;
  size_t now_ = 0, peak_ = 0;
};

class GpuMemory final : public DeviceMemory {
 public:
  explicit GpuMemory(int device) : device_(device) {}

  bool is_host() const override { return false; }
  std::shared_ptr<void> allocate(size_t bytes) const override {
    if (bytes == 0) return nullptr;
    select();
    return known(std::make_shared<CudaMemory>(bytes));
  }
  std::shared_ptr<void> try_allocate(size_t bytes) const override {
    select();
    auto memory = CudaMemory::try_allocate(bytes);
    return memory == nullptr ? nullptr : known(std::move(memory));
  }
  std::shared_ptr<void> allocate_host(size_t bytes) const override {
    if (bytes == 0) return nullptr;
    select();
    auto memory = std::make_shared<cuda::HostMemory>(bytes);
    return {memory, memory->data()};
  }
  std::shared_ptr<void> reserve_host(size_t bytes) const override {
    auto memory = host_memory().allocate(bytes);
    void* const begin = memory.get();
    return {begin, [memory = std::move(memory), pinned = pinned_, bytes](void* address) mutable {
              pinned->unpin(address, bytes);
              memory.reset();
            }};
  }
  void pin_host(void* begin, size_t bytes) const override {
    select();
    pinned_->pin(begin, bytes);
  }
  bool holds(const void* address) const override { return allocations_->hold(address); }
  void download(const void* from, void* to, size_t bytes) const override {
    pinned_->for_parts(to, bytes, [&](size_t offset, size_t part) {
      copy(at(from, offset), static_cast<char*>(to) + offset, part, cudaMemcpyDeviceToHost);
    });
  }
  void upload(const void* from, void* to, size_t bytes) const override {
    pinned_->for_parts(from, bytes, [&](size_t offset, size_t part) {
      copy(at(from, offset), static_cast<char*>(to) + offset, part, cudaMemcpyHostToDevice);
    });
  }

  std::unique_ptr<DeviceQueue> open_queue() const override {
    select();
    return std::make_unique<cuda::Queue>(device_);
  }
  std::string identity() const override {
    constexpr int kBusIdMax = 32;
    std::array<char, kBusIdMax> id{};
    MUSTER_CUDA_CHECK(cudaDeviceGetPCIBusId(id.data(), kBusIdMax, device_));
    return id.data();
  }

  size_t free_bytes() const {
    select();
    size_t free = 0, total = 0;
    MUSTER_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return free;
  }
  const Allocations& allocations() const { return *allocations_; }

 private:
  void select() const { MUSTER_CUDA_CHECK(cudaSetDevice(device_)); }
  std::shared_ptr<void> known(std::shared_ptr<CudaMemory> memory) const {
    void* const begin = memory->data();
    allocations_->add(begin, memory->bytes());
    return {begin, [memory = std::move(memory), all = allocations_](void* address) mutable {
              all->remove(address);
              memory.reset();
            }};
  }
  static const void* at(const void* from, size_t offset) {
    return static_cast<const char*>(from) + offset;
  }
  void copy(const void* from, void* to, size_t bytes, cudaMemcpyKind kind) const {
    if (bytes == 0) return;
    select();
    MUSTER_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, cudaStreamPerThread));
    MUSTER_CUDA_CHECK(cudaStreamSynchronize(cudaStreamPerThread));
  }

  const int device_;
  const std::shared_ptr<Allocations> allocations_ = std::make_shared<Allocations>();
  const std::shared_ptr<cuda::PinnedHost> pinned_ = std::make_shared<cuda::PinnedHost>();
};

class GpuBackend final : public Backend {
 public:
  GpuBackend(const GpuOptions& options, CudaDevice device)
      : device_(std::move(device)),
        own_bytes_(options.scratch_bytes),
        memory_(device_.index),
        ops_(cuda_ops({.device = device_.index,
                       .scratch_bytes = options.scratch_bytes,
                       .algorithms_path = options.algorithms_path,
                       .allows_tf32 = options.allows_tf32})) {}

  Ops& ops() override { return *ops_; }
  const DeviceMemory& memory() const override { return memory_; }
  int threads() const override { return 1; }
  ~GpuBackend() override { cuda::end_range(phase_); }

  std::string description() const override {
    return absl::StrCat(device_.name, ", compute capability ", device_.capability / 10, ".",
                        device_.capability % 10, ", ", device_.memory_bytes >> 20, " MiB, ",
                        av(ops_->name()));
  }
  size_t total_bytes() const override { return device_.memory_bytes; }
  size_t free_bytes() const override { return memory_.free_bytes(); }
  size_t own_bytes() const override { return own_bytes_; }
  size_t peak_bytes() const override { return memory_.allocations().peak(); }
  int multiprocessors() const override { return device_.multiprocessors; }
  void enter_phase(const char* name) override {
    const std::lock_guard lock(phase_mutex_);
    cuda::end_range(phase_);
    phase_ = cuda::start_range(name);
  }
  bool record_profile(bool on) override {
    return (on ? cudaProfilerStart() : cudaProfilerStop()) == cudaSuccess;
  }

 private:
  CudaDevice device_;
  size_t own_bytes_;
  GpuMemory memory_;
  std::unique_ptr<Ops> ops_;
  std::mutex phase_mutex_;
  uint64_t phase_ = 0;  // the range of the current phase
};

}  // namespace

int gpu_count() {
  int devices = 0;
  // find_cuda_device reports the reason.
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

absl::StatusOr<std::shared_ptr<Backend>> gpu_backend(const GpuOptions& options) {
  const int devices = gpu_count();
  auto device = find_cuda_device(devices > 0 ? options.rank_of_node % devices : 0);
  if (!device.ok()) return device.status();
  return std::make_shared<GpuBackend>(options, *std::move(device));
}

}  // namespace muster::trainer
