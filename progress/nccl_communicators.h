// The communicators of a process, as the NCCL plugin follows them, and their collectives under way. Not a library: nccl_profiler.cc's.
//
// There is one place for each group that a page can have. NCCL's init takes one, finalize gives it back, and the next communicator
// gets it, with the group: a program that makes and drops communicators all day keeps being seen. What a communicator left on the page
// stays until then: whoever aborts a hung one and dies of it leaves the evidence.
//
// Handles and contexts are numbers and not pointers: nothing is allocated per collective, and one that NCCL keeps for longer than we
// remember, or of a communicator that is gone, is recognised as such.
//
// Any thread may call. Taking, naming and giving back are under a mutex; what happens per collective is not.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "progress/muster_progress.h"

namespace muster::nccl {

// Collectives of one communicator that may be on their way at once; what was asked for longer ago is not followed any more.
constexpr uint64_t kInFlight = 1024;

// From the lowest bits on: kind, place, number of the collective, and which of the place's communicators it is.
struct Handle {
  enum Kind : uint64_t { kOfCollective, kOfKernel, kOfProxy, kOfOther };
  static constexpr int kPlaceAt = 2, kNumberAt = 7, kGenerationAt = 48;

  Kind kind = kOfCollective;
  size_t place = 0;
  uint64_t number = 0;
  uint64_t generation = 0;

  // Of one place and kind, the younger the larger.
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
  std::atomic<uint64_t> before{0};  // the last one of earlier kernels; 0: none, or told already
  std::atomic<uint32_t> channels{0};
  std::atomic<uint32_t> stopped{0};
};

struct Communicator {
  // Under the mutex.
  bool is_taken = false;
  uint64_t hash = 0;
  int ordinal = 0;  // among those of this hash in this process

  int group = -1;  // on the page; -1: none yet, or no room
  std::atomic<bool> is_named{false};
  std::atomic<uint64_t> generation{0};
  std::atomic<uint64_t> enqueued{0};  // the newest number
  std::atomic<uint64_t> planned{0};   // the newest one of earlier plans
  std::atomic<uint64_t> done{0};      // up to this one all are; only its proxy thread writes
  Flight flights[kInFlight];
};

struct Communicators {
  std::mutex mutex;
  bool is_open = false;
  muster_progress page{};
  Communicator places[MUSTER_GROUPS_MAX];
};

}  // namespace muster::nccl
