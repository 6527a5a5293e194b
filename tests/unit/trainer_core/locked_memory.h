// A device for tests on machines without one. Its memory is protected by mprotect(), not
// page-locked: any access except the device's copies ends the test.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tests/unit/trainer_core/thread_queue.h"
#include "trainer_core/base/check.h"
#include "trainer_core/base/device_memory.h"

namespace muster::trainer {

class LockedMemory final : public DeviceMemory {
 public:
  // Whether the device executes work.
  std::atomic<bool> runs{true};
  // The clock of the device's queues.
  ThreadQueue::Clock now = monotonic_now;

  bool is_host() const override { return false; }
  std::shared_ptr<void> allocate(size_t bytes) const override {
    if (bytes == 0) return nullptr;
    constexpr size_t kPage = 4096;
    const size_t mapped = (bytes + kPage - 1) / kPage * kPage;
    void* const begin = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUSTER_CHECK(begin != MAP_FAILED) << "no memory";
    const std::lock_guard lock(all_->mutex);
    all_->sizes[static_cast<char*>(begin)] = mapped;
    return {begin, [all = all_, mapped](void* address) {
              const std::lock_guard guard(all->mutex);
              all->sizes.erase(static_cast<char*>(address));
              munmap(address, mapped);
            }};
  }
  std::shared_ptr<void> allocate_host(size_t bytes) const override {
    return host_memory().allocate(bytes);
  }
  bool holds(const void* address) const override {
    const std::lock_guard lock(all_->mutex);
    return find(address) != all_->sizes.end();
  }
  void download(const void* from, void* to, size_t bytes) const override {
    copy(from, from, to, bytes);
  }
  void upload(const void* from, void* to, size_t bytes) const override {
    copy(to, from, to, bytes);
  }
  std::unique_ptr<DeviceQueue> open_queue() const override {
    return std::make_unique<ThreadQueue>(runs, now);
  }
  std::string identity() const override { return "locked memory"; }

 private:
  struct All {
    std::mutex mutex;
    std::map<const char*, size_t> sizes;
  };

  std::map<const char*, size_t>::const_iterator find(const void* address) const {
    const auto* const byte = static_cast<const char*>(address);
    auto found = all_->sizes.upper_bound(byte);
    if (found == all_->sizes.begin()) return all_->sizes.end();
    --found;
    return byte < found->first + found->second ? found : all_->sizes.end();
  }
  void copy(const void* locked, const void* from, void* to, size_t bytes) const {
    if (bytes == 0) return;
    const std::lock_guard lock(all_->mutex);
    const auto found = find(locked);
    MUSTER_CHECK(found != all_->sizes.end()) << "not of this device";
    auto* const begin = const_cast<char*>(found->first);
    mprotect(begin, found->second, PROT_READ | PROT_WRITE);
    std::memcpy(to, from, bytes);
    mprotect(begin, found->second, PROT_NONE);
  }

  std::shared_ptr<All> all_ = std::make_shared<All>();
};

}  // namespace muster::trainer
