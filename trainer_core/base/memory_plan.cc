#include "trainer_core/base/memory_plan.h"

#include <algorithm>
#include <utility>

#include "trainer_core/base/check.h"

namespace muster::trainer {

BufferId MemoryPlan::add(std::string name, MemoryCategory category, size_t bytes) {
  buffers_.push_back({std::move(name), category, total_bytes_, bytes});
  total_bytes_ += aligned_bytes(bytes);
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

Arena::Arena(const MemoryPlan& plan, const DeviceMemory& memory, std::shared_ptr<void> device)
    : bytes_(plan.total_bytes()),
      device_bytes_(memory.is_host() ? bytes_ : plan.device_bytes()),
      reserved_begin_(memory.is_host() ? bytes_ : std::max(plan.reserved_begin(), device_bytes_)),
      memory_(device != nullptr ? std::move(device) : memory.allocate(device_bytes_)),
      host_(device_bytes_ < reserved_begin_ ? memory.allocate_host(reserved_begin_ - device_bytes_)
                                            : nullptr),
      reserved_(reserved_begin_ < bytes_ ? memory.reserve_host(bytes_ - reserved_begin_)
                                         : nullptr) {
  offsets_.reserve(plan.buffers().size());
  for (const PlannedBuffer& buffer : plan.buffers()) offsets_.push_back(buffer.offset);
}

void* Arena::buffer(BufferId id) const {
  MUSTER_CHECK(id.index_ < offsets_.size()) << "no buffer of " << offsets_.size();
  const size_t offset = offsets_[id.index_];
  const auto in = [offset](const std::shared_ptr<void>& memory, size_t begin) {
    return static_cast<std::byte*>(memory.get()) + (offset - begin);
  };
  if (reserved_ != nullptr && offset >= reserved_begin_) return in(reserved_, reserved_begin_);
  if (host_ != nullptr && offset >= device_bytes_) return in(host_, device_bytes_);
  return in(memory_, 0);
}

}  // namespace muster::trainer
