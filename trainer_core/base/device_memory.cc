#include "trainer_core/base/device_memory.h"

#include <sys/mman.h>

#include <cstring>

#include "trainer_core/base/check.h"

namespace muster::trainer {
namespace {

class HostMemory final : public DeviceMemory {
 public:
  bool is_host() const override { return true; }

  std::shared_ptr<void> allocate(size_t bytes) const override {
    if (bytes == 0) return nullptr;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUSTER_CHECK(memory != MAP_FAILED) << "cannot map " << bytes << " bytes for the memory plan";
    madvise(memory, bytes, MADV_HUGEPAGE);  // advice only: fewer TLB misses where the kernel agrees
    return {memory, [bytes](void* begin) { munmap(begin, bytes); }};
  }
  std::shared_ptr<void> allocate_host(size_t bytes) const override { return allocate(bytes); }
  bool holds(const void* /*address*/) const override { return false; }
  void download(const void* from, void* to, size_t bytes) const override { copy(from, to, bytes); }
  void upload(const void* from, void* to, size_t bytes) const override { copy(from, to, bytes); }

 private:
  static void copy(const void* from, void* to, size_t bytes) {
    if (bytes > 0 && from != to) std::memcpy(to, from, bytes);
  }
};

}  // namespace

std::shared_ptr<void> DeviceMemory::reserve_host(size_t bytes) const {
  return host_memory().allocate(bytes);
}

const DeviceMemory& host_memory() {
  static const HostMemory memory;
  return memory;
}

}  // namespace muster::trainer
