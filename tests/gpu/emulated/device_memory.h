// The memory of the emulated device. Internal to simt.cc, runtime.cc and tensor_core.cc.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>

namespace emulated {

// Size of the emulated device's memory.
constexpr size_t kMemoryBytes = size_t{1} << 34;

// Ends the process with a message that names the block.
[[noreturn]] void fail(const char* what);
// Ends the process if the running thread has started copies that it did not wait for.
void check_copies();

// The device's memory. It is accessible only while an Open object exists, which kernels and copies
// create. A guard page follows each allocation.
class DeviceMemory {
 public:
  // Makes the memory accessible during its life.
  class Open {
   public:
    explicit Open(DeviceMemory& memory) : memory_(memory) {
      memory_.protect(PROT_READ | PROT_WRITE, 1);
    }
    ~Open() { memory_.protect(PROT_NONE, -1); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    DeviceMemory& memory_;
  };

  void* add(size_t bytes, int device) {
    const size_t used = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const size_t pages = (used + kPage - 1) / kPage * kPage;
    void* const mapped =
        mmap(nullptr, pages + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) fail("no memory");
    char* const base = static_cast<char*>(mapped);
    const std::lock_guard lock(mutex_);
    if (open_ > 0) mprotect(base, pages, PROT_READ | PROT_WRITE);
    char* const data = base + pages - used;
    all_[data] = {base, pages, device};
    bytes_ += pages;
    return data;
  }
  // Zeroes an allocation by releasing its pages. Returns false unless [data, data + bytes) is an
  // entire allocation.
  bool zero_pages(void* data, size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(static_cast<char*>(data));
    if (found == all_.end()) return false;
    const auto& [base, pages, device] = found->second;
    const size_t behind = static_cast<size_t>(base + pages - static_cast<char*>(data)) - bytes;
    if (behind >= kAlignment) return false;
    return madvise(base, pages, MADV_DONTNEED) == 0;
  }
  void remove(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(static_cast<char*>(data));
    if (found == all_.end()) fail("what is freed was never allocated");
    bytes_ -= found->second.pages;
    munmap(found->second.base, found->second.pages + kPage);
    all_.erase(found);
  }

  // Returns the device that owns [address, address + bytes), which may be empty; nullopt if none
  // does.
  std::optional<int> device_of(const void* address, size_t bytes) const {
    const std::lock_guard lock(mutex_);
    auto found = all_.upper_bound(static_cast<char*>(const_cast<void*>(address)));
    if (found == all_.begin()) return std::nullopt;
    --found;
    const auto& [base, pages, device] = found->second;
    const bool inside = static_cast<const char*>(address) + bytes <= base + pages;
    return inside ? std::optional(device) : std::nullopt;
  }
  size_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  static constexpr size_t kPage = 4096;
  static constexpr size_t kAlignment = 256;  // as in CUDA

  struct Allocation {
    char* base;
    size_t pages;  // size in bytes, a multiple of the page size
    int device;
  };

  void protect(int how, int change) {
    const std::lock_guard lock(mutex_);
    const int before = open_;
    open_ += change;
    if (before > 0 && open_ > 0) return;
    for (const auto& [data, of] : all_) mprotect(of.base, of.pages, how);
  }

  mutable std::mutex mutex_;
  std::map<char*, Allocation> all_;
  size_t bytes_ = 0;  // sum of the sizes in all_
  int open_ = 0;
};

DeviceMemory& memory();

}  // namespace emulated
