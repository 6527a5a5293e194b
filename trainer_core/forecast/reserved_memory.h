// The memory of a backend that computes nothing: address space without pages.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>

#include "trainer_core/base/check.h"
#include "trainer_core/base/device_memory.h"

namespace muster::trainer {

// Reserves address space without pages. An access to it ends the process. Thread-safe.
class ReservedMemory final : public DeviceMemory {
 public:
  bool is_host() const override { return false; }
  std::shared_ptr<void> allocate(size_t bytes) const override { return reserve(bytes, false); }
  std::shared_ptr<void> allocate_host(size_t bytes) const override { return reserve(bytes, true); }
  std::shared_ptr<void> reserve_host(size_t bytes) const override { return reserve(bytes, true); }
  bool holds(const void* address) const override {
    const std::lock_guard lock(mutex_);
    return lies_in(device_, address);
  }
  // Returns whether an address is host memory of the plan.
  bool is_planned_host(const void* address) const {
    const std::lock_guard lock(mutex_);
    return lies_in(host_, address);
  }
  void download(const void*, void*, size_t) const override {}
  void upload(const void*, void*, size_t) const override {}

 private:
  using Areas = std::map<const char*, size_t>;

  static bool lies_in(const Areas& areas, const void* address) {
    const auto* const at = static_cast<const char*>(address);
    const auto after = areas.upper_bound(at);
    if (after == areas.begin()) return false;
    const auto& [begin, bytes] = *std::prev(after);
    return at < begin + bytes;
  }

  std::shared_ptr<void> reserve(size_t bytes, bool host) const {
    const size_t size = std::max<size_t>(bytes, 1);
    void* const at =
        ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUSTER_CHECK(at != MAP_FAILED) << "cannot reserve " << size << " bytes of address space";
    const std::lock_guard lock(mutex_);
    (host ? host_ : device_)[static_cast<const char*>(at)] = size;
    return {at, [size](void* begin) { ::munmap(begin, size); }};
  }

  mutable std::mutex mutex_;  // guards the areas
  mutable Areas device_, host_;
};

}  // namespace muster::trainer
