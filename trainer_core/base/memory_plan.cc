#include "trainer_core/base/memory_plan.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "trainer_core/base/check.h"

namespace muster::trainer {

BufferId MemoryPlan::add(std::string name, MemoryCategory category, size_t bytes) {
  buffers_.push_back({std::move(name), category, total_bytes_, bytes});
  total_bytes_ += (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  return BufferId(buffers_.size() - 1);
}

const PlannedBuffer& MemoryPlan::at(BufferId id) const {
  MUSTER_CHECK(id.index_ < buffers_.size()) << "no buffer of " << buffers_.size();
  return buffers_[id.index_];
}

size_t MemoryPlan::category_bytes(MemoryCategory category) const {
  std::vector<const PlannedBuffer*> found;
  for (const PlannedBuffer& buffer : buffers_) {
    if (buffer.category == category) found.push_back(&buffer);
  }
  std::ranges::sort(found, {}, &PlannedBuffer::offset);
  size_t bytes = 0, covered = 0;  // up to the offset `covered`
  for (const PlannedBuffer* buffer : found) {
    const size_t begin = std::max(buffer->offset, covered);
    const size_t end = buffer->offset + buffer->bytes;
    if (end <= begin) continue;
    bytes += end - begin;
    covered = end;
  }
  return bytes;
}

Arena::Arena(const MemoryPlan& plan, void* memory)
    : bytes_(plan.total_bytes()), base_(static_cast<std::byte*>(memory)), owns_(false) {
  offsets_.reserve(plan.buffers().size());
  for (const PlannedBuffer& buffer : plan.buffers()) offsets_.push_back(buffer.offset);
}

Arena::Arena(const MemoryPlan& plan) : Arena(plan, nullptr) {
  owns_ = true;
  if (bytes_ == 0) return;
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  MUSTER_CHECK(memory != MAP_FAILED) << "cannot map " << bytes_ << " bytes for the memory plan";
  madvise(memory, bytes_, MADV_HUGEPAGE);  // advice only: fewer TLB misses where the kernel agrees
  base_ = static_cast<std::byte*>(memory);
}

Arena::~Arena() {
  if (owns_ && base_ != nullptr) munmap(base_, bytes_);
}

void* Arena::buffer(BufferId id) const {
  MUSTER_CHECK(id.index_ < offsets_.size()) << "no buffer of " << offsets_.size();
  return base_ + offsets_[id.index_];
}

}  // namespace muster::trainer
