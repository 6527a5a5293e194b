// The static memory plan: every buffer of a training step, laid out from the config before anything
// is allocated. A run allocates exactly the plan's bytes once, and the preflight compares the same
// bytes with the machine's memory, so prediction and allocation share one code path. Buffers that
// are never in use at the same time may overlap (overlay).
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

// kActivations: saved by layers from forward to backward. kWorkspace: shared by layers. kOffloaded:
// saved by layers in host memory. kCheckpoint: the copy from which a checkpoint is written, also in
// host memory. kGathered: full parameters of which the rank stores a part. kGradients: stored
// gradients, and full ones before they are scattered.
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
constexpr std::array<std::string_view, 9> kMemoryCategoryNames = {
    "parameters", "gradients", "optimizer",  "activations", "kv_cache",
    "workspace",  "offloaded", "checkpoint", "gathered"};

// The alignment of every buffer: a cache line, and the widest vector.
constexpr size_t kBufferAlignment = 64;
// Returns `bytes` rounded up to a multiple of kBufferAlignment.
constexpr size_t aligned_bytes(size_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

struct PlannedBuffer {
  std::string name;
  MemoryCategory category;
  size_t offset;  // bytes from the arena's start
  size_t bytes;
};

// Identifies a buffer of one plan. The default identifies none, whose memory must not be requested.
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

class MemoryPlan {
 public:
  BufferId add(std::string name, MemoryCategory category, size_t bytes);

  // Each function adds buffers. Buffers of different functions overlap, because they are never in
  // use at the same time; buffers of one function lie side by side.
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

  // Places all later buffers in host memory, which on the CPU is the same memory as the others.
  void begin_host() { device_bytes_ = total_bytes_; }
  // Starts the host buffers that a device only reserves (DeviceMemory::reserve_host). Requires an
  // earlier begin_host().
  void begin_reserved() { reserved_begin_ = total_bytes_; }
  size_t reserved_begin() const { return std::min(reserved_begin_, total_bytes_); }
  // Returns the bytes of the buffers before begin_host().
  size_t device_bytes() const { return std::min(device_bytes_, total_bytes_); }

  const std::vector<PlannedBuffer>& buffers() const { return buffers_; }
  const PlannedBuffer& at(BufferId id) const;
  size_t total_bytes() const { return total_bytes_; }
  // Returns the bytes of the category's buffers; overlapping bytes count once.
  size_t category_bytes(MemoryCategory category) const;

 private:
  std::vector<PlannedBuffer> buffers_;
  size_t total_bytes_ = 0;
  size_t device_bytes_ = std::numeric_limits<size_t>::max();
  size_t reserved_begin_ = std::numeric_limits<size_t>::max();
};

// Owns a plan's memory: one zeroed allocation of a backend for its whole life, and a second one for
// host buffers if the backend's memory is not the host's. Moving is not thread-safe; views of its
// buffers may be used on any thread.
class Arena {
 public:
  // `device`: the plan's device part, if the caller has allocated it from `memory` already.
  explicit Arena(const MemoryPlan& plan, const DeviceMemory& memory = host_memory(),
                 std::shared_ptr<void> device = nullptr);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void* buffer(BufferId id) const;
  float* f32(BufferId id) const { return static_cast<float*>(buffer(id)); }
  void* begin() const { return memory_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  std::vector<size_t> offsets_;
  size_t bytes_;
  size_t device_bytes_;    // from here on buffers lie in host_
  size_t reserved_begin_;  // from here on buffers lie in reserved_
  std::shared_ptr<void> memory_;
  std::shared_ptr<void> host_;      // null: there are none
  std::shared_ptr<void> reserved_;  // null: there are none
};

}  // namespace muster::trainer
