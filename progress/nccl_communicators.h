// The communicators of a process, as the NCCL plugin follows them, and their collectives in flight.
// Private to nccl_profiler.cc.
//
// There is one slot for each group that a page can have. NCCL's init takes a slot, finalize returns
// it, and the next communicator gets it together with its group: a program that creates and
// destroys communicators all day stays visible. A communicator's data stays on the page until then:
// a program that aborts a hung communicator and dies leaves the evidence.
//
// Handles and contexts are numbers, not pointers: nothing is allocated per collective, and a handle
// that NCCL keeps beyond our history, or of a closed communicator, is recognised as stale.
//
// Thread-safe. A mutex guards taking, naming and returning slots; per-collective work is lock-free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "progress/muster_progress.h"

namespace muster::nccl {

// Maximum number of collectives in flight per communicator; older ones are not followed any more.
constexpr uint64_t kInFlight = 1024;

// From the lowest bits on: kind, slot, number of the collective, and generation of the slot's
// communicator.
struct Handle {
  enum Kind : uint64_t { kOfCollective, kOfKernel, kOfProxy, kOfOther };
  static constexpr int kPlaceAt = 2, kNumberAt = 7, kGenerationAt = 48;

  Kind kind = kOfCollective;
  size_t place = 0;
  uint64_t number = 0;
  uint64_t generation = 0;

  // Within one slot and kind, newer handles are larger.
  uint64_t word() const {
    return generation << kGenerationAt | number << kNumberAt |
           static_cast<uint64_t>(place) << kPlaceAt | kind;
  }
  void* pointer() const {
    const uint64_t value = word();
    void* pointer = nullptr;
    memcpy(&pointer, &value, sizeof(pointer));
    return pointer;
  }
  static Handle from(uint64_t word) {
    return {.kind = static_cast<Kind>(word & 3),
            .place = static_cast<size_t>(word >> kPlaceAt) % MUSTER_GROUPS_MAX,
            .number = word << (64 - kGenerationAt) >> (64 - kGenerationAt + kNumberAt),
            .generation = word >> kGenerationAt};
  }
  static Handle from(const void* pointer) {
    uint64_t word = 0;
    memcpy(&word, &pointer, sizeof(word));
    return from(word);
  }
};
static_assert(MUSTER_GROUPS_MAX == 1 << (Handle::kNumberAt - Handle::kPlaceAt));
static_assert(sizeof(void*) == sizeof(uint64_t));
constexpr uint64_t kGenerationMask = 0xFFFF;

struct Flight {
  std::atomic<uint64_t> handle{0};  // its word; 0: none
  std::atomic<uint64_t> before{0};  // the last one of earlier kernels; 0: none, or already reported
  std::atomic<uint32_t> channels{0};
  std::atomic<uint32_t> stopped{0};
};

struct Communicator {
  // Guarded by the mutex.
  bool is_taken = false;
  uint64_t hash = 0;
  int ordinal = 0;  // among communicators of this hash in this process

  int group = -1;  // on the page; -1: none yet, or no room
  std::atomic<bool> is_named{false};
  std::atomic<uint64_t> generation{0};
  std::atomic<uint64_t> enqueued{0};  // the newest number
  std::atomic<uint64_t> planned{0};   // the newest one of earlier plans
  // all up to this one are complete; written by its proxy thread only
  std::atomic<uint64_t> done{0};
  Flight flights[kInFlight];
};

struct Communicators {
  std::mutex mutex;
  bool is_open = false;
  muster_progress page{};
  Communicator places[MUSTER_GROUPS_MAX];
};

}  // namespace muster::nccl
