// The static memory plan: it lays out every buffer of a training step from the config, before
// anything is allocated. A run allocates exactly the plan's bytes, once. The preflight compares the
// same bytes with the machine's memory, so prediction and allocation share one code path. Buffers
// that are never in use at the same time may overlap (MemoryPlan::overlay).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trainer_core/base/device_memory.h"

namespace muster::trainer {

// The purpose of a buffer. kActivations: values that a layer's forward pass saves for its backward
// pass. kOffloaded: the same, but saved in host memory. kWorkspace: scratch memory that all layers
// share. kCheckpoint: the copy in host memory from which a checkpoint is written. kGathered:
// complete parameters, gathered from ranks that each store a part. kGradients: the stored
// gradients, and complete gradients before they are scattered to the ranks.
enum class MemoryCategory {
  kParameters,
  kGradients,
  kOptimizer,
  kActivations,
  kKvCache,
  kWorkspace,
  kOffloaded,
  kCheckpoint,
  kGathered
};
// The categories' names in reports, in the order of the enum.
constexpr std::array<std::string_view, 9> kMemoryCategoryNames = {
    "parameters", "gradients", "optimizer",  "activations", "kv_cache",
    "workspace",  "offloaded", "checkpoint", "gathered"};

// The alignment of every buffer, in bytes: a cache line, which is also the widest SIMD vector.
constexpr size_t kBufferAlignment = 64;
// Returns `bytes` rounded up to a multiple of kBufferAlignment.
constexpr size_t aligned_bytes(size_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

// A buffer of the plan: its name, purpose and position.
struct PlannedBuffer {
  std::string name;
  MemoryCategory category;
  size_t offset;  // bytes from the arena's start
  size_t bytes;
};

// Identifies a buffer of one plan. A default BufferId identifies no buffer; its memory must not be
// requested.
class BufferId {
 public:
  constexpr BufferId() = default;

  constexpr bool exists() const { return *this != BufferId(); }
  friend constexpr bool operator==(BufferId, BufferId) = default;

 private:
  friend class MemoryPlan;
  friend class Arena;
  constexpr explicit BufferId(size_t index) : index_(index) {}

  size_t index_ = std::numeric_limits<size_t>::max();
};

// A list of buffers and their positions. Not thread-safe while buffers are added.
class MemoryPlan {
 public:
  // Places a buffer after the previous one, aligned to kBufferAlignment.
  BufferId add(std::string name, MemoryCategory category, size_t bytes);

  // Calls each function; each one adds buffers. Buffers of different functions overlap; those of
  // one function lie side by side. Requires that buffers of different functions are never in use at
  // the same time.
  template <class... Functions>
  void overlay(const Functions&... functions) {
    const size_t start = total_bytes_;
    size_t end = start;
    const auto run = [&](const auto& function) {
      total_bytes_ = start;
      function();
      end = std::max(end, total_bytes_);
    };
    (run(functions), ...);
    total_bytes_ = end;
  }

  // Places all buffers that are added later in host memory. With the CPU backend, all buffers lie
  // there.
  void begin_host() { device_bytes_ = total_bytes_; }
  // Places all buffers that are added later in reserved host memory (DeviceMemory::reserve_host).
  // Requires an earlier begin_host().
  void begin_reserved_host() { reserved_begin_ = total_bytes_; }
  // Returns the offset of the first buffer after begin_reserved_host(); total_bytes() if there is
  // none.
  size_t reserved_begin() const { return std::min(reserved_begin_, total_bytes_); }
  // Returns the bytes of the buffers that were added before begin_host().
  size_t device_bytes() const { return std::min(device_bytes_, total_bytes_); }

  const std::vector<PlannedBuffer>& buffers() const { return buffers_; }
  // Returns the buffer. Requires id.exists().
  const PlannedBuffer& at(BufferId id) const;
  size_t total_bytes() const { return total_bytes_; }
  // Returns the bytes of the category's buffers. Bytes at which several of them overlap count once.
  size_t category_bytes(MemoryCategory category) const;

 private:
  std::vector<PlannedBuffer> buffers_;
  size_t total_bytes_ = 0;
  size_t device_bytes_ = std::numeric_limits<size_t>::max();
  size_t reserved_begin_ = std::numeric_limits<size_t>::max();
};

// Owns the memory of a plan: one zeroed allocation for its whole life. If `memory` is a device's,
// host buffers and reserved host buffers have an allocation each. Thread-safe; pointers to buffers
// are valid as long as the arena.
class Arena {
 public:
  // Allocates the plan's memory. `device` is the plan's device part if the caller has already
  // allocated it from `memory`; null: the arena allocates it.
  explicit Arena(const MemoryPlan& plan, const DeviceMemory& memory = host_memory(),
                 std::shared_ptr<void> device = nullptr);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns the address of the buffer. Requires id.exists().
  void* buffer(BufferId id) const;
  float* f32(BufferId id) const { return static_cast<float*>(buffer(id)); }
  void* begin() const { return memory_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  std::vector<size_t> offsets_;
  size_t bytes_;
  size_t device_bytes_;    // buffers at this offset or later lie in host_
  size_t reserved_begin_;  // buffers at this offset or later lie in reserved_
  std::shared_ptr<void> memory_;
  std::shared_ptr<void> host_;      // null: the plan has no host buffers, or memory_ has them
  std::shared_ptr<void> reserved_;  // null: likewise
};

}  // namespace muster::trainer
