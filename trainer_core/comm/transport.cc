#include "trainer_core/comm/transport.h"

#include <sys/mman.h>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/check.h"

namespace muster::trainer {

std::span<std::byte> Transport::memory(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  MUSTER_CHECK(memory != MAP_FAILED) << "cannot map " << bytes << " bytes to send from";
  madvise(memory, bytes, MADV_HUGEPAGE);  // advice only, as for the memory plan
  const std::lock_guard lock(mutex_);
  memory_.emplace_back(static_cast<std::byte*>(memory),
                       [bytes](std::byte* mapped) { munmap(mapped, bytes); });
  return {memory_.back().get(), bytes};
}

void Transport::abort() { fail(absl::StrCat("rank ", rank(), " aborted")); }

}  // namespace muster::trainer
