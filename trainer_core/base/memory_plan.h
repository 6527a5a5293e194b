// The static memory plan: every buffer of a training step, laid out from the config before anything is allocated. A run
// allocates exactly the plan's bytes once, and the preflight compares the same bytes with the machine's memory: prediction
// and reality are one code path. Buffers that are never in use at the same time may lie on each other (overlay).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace muster::trainer {

// kActivations: what layers keep from forward to backward. kWorkspace: what they share. kOffloaded: what they keep in the
// host's memory, which on a backend whose own memory is the host's (CPU) lies in the same arena as the rest. kCheckpoint: the
// copy from which a checkpoint is written, in the host's memory. kGathered: parameters of which the rank stores a part, as a
// whole. kGradients has what is stored of gradients, and those that are whole before ranks share them out.
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

// Every buffer starts at a multiple of this: a cache line, and the widest vector.
constexpr size_t kBufferAlignment = 64;

struct PlannedBuffer {
  std::string name;
  MemoryCategory category;
  size_t offset;  // bytes from the arena's start
  size_t bytes;
};

// Identifies a buffer of one plan; by default none, whose memory nobody may ask for.
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

  // Each of the functions adds buffers; what different ones add shares memory, because it is never in use at the same
  // time. What one of them adds lies side by side.
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

  const std::vector<PlannedBuffer>& buffers() const { return buffers_; }
  const PlannedBuffer& at(BufferId id) const;
  size_t total_bytes() const { return total_bytes_; }
  // Of the category's buffers; what lies on each other counts once.
  size_t category_bytes(MemoryCategory category) const;

 private:
  std::vector<PlannedBuffer> buffers_;
  size_t total_bytes_ = 0;
};

// Owns a plan's memory: one zeroed allocation for its whole life. Not thread-safe to move; views of
// its buffers may be used from any thread.
class Arena {
 public:
  explicit Arena(const MemoryPlan& plan);
  // In memory that somebody else has and keeps longer: a device's. Of plan.total_bytes(), zeroed. Nothing here reads or writes it.
  Arena(const MemoryPlan& plan, void* memory);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void* buffer(BufferId id) const;
  float* f32(BufferId id) const { return static_cast<float*>(buffer(id)); }
  void* begin() const { return base_; }
  size_t bytes() const { return bytes_; }

 private:
  std::vector<size_t> offsets_;
  size_t bytes_ = 0;
  std::byte* base_ = nullptr;
  bool owns_ = true;
};

}  // namespace muster::trainer
