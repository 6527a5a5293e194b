// The state of the NCCL profiler plugin: the communicators of a process and their collectives in
// flight. Private to nccl_profiler.cc.
//
// There is one slot for each process group that a progress page can have. init() of a communicator
// takes a slot, finalize() returns it, and the next communicator reuses the slot and its group on
// the page: so the page never runs out of groups in a program that keeps creating and destroying
// communicators. The data of a finalized communicator stays on the page until the slot is reused:
// so the evidence remains if a program aborts a hung communicator and dies.
//
// The handles and contexts that NCCL receives are numbers, not pointers. Therefore no memory is
// allocated per collective, and the plugin recognises a stale handle: of a closed communicator, or
// of a collective older than the kInFlight newest ones.
//
// Thread-safe. A mutex guards taking, naming and returning slots; the work per collective takes no
// lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "progress/muster_progress.h"

namespace muster::nccl {

// Maximum number of collectives in flight per communicator; older collectives are no longer
// tracked.
constexpr uint64_t kInFlight = 1024;

// A handle of an NCCL event as a 64-bit word. From the lowest bits on, it contains the event's
// kind, the slot, the number of the collective, and the generation of the communicator in the slot.
struct Handle {
  enum Kind : uint64_t { kOfCollective, kOfKernel, kOfProxy, kOfOther };
  static constexpr int kSlotAt = 2, kNumberAt = 7, kGenerationAt = 48;

  Kind kind = kOfCollective;
  size_t slot = 0;
  uint64_t number = 0;
  uint64_t generation = 0;

  // Returns the handle as a word. Within one slot and kind, newer handles are larger.
  uint64_t word() const {
    return generation << kGenerationAt | number << kNumberAt |
           static_cast<uint64_t>(slot) << kSlotAt | kind;
  }
  void* pointer() const {
    const uint64_t value = word();
    void* pointer = nullptr;
    memcpy(&pointer, &value, sizeof(pointer));
    return pointer;
  }
  static Handle from(uint64_t word) {
    return {.kind = static_cast<Kind>(word & 3),
            .slot = static_cast<size_t>(word >> kSlotAt) % MUSTER_GROUPS_MAX,
            .number = word << (64 - kGenerationAt) >> (64 - kGenerationAt + kNumberAt),
            .generation = word >> kGenerationAt};
  }
  static Handle from(const void* pointer) {
    uint64_t word = 0;
    memcpy(&word, &pointer, sizeof(word));
    return from(word);
  }
};
static_assert(MUSTER_GROUPS_MAX == 1 << (Handle::kNumberAt - Handle::kSlotAt));
static_assert(sizeof(void*) == sizeof(uint64_t));
constexpr uint64_t kGenerationMask = 0xFFFF;

// A collective in flight.
struct Flight {
  std::atomic<uint64_t> handle{0};  // word() of the collective's handle; 0: none
  // number of the last collective of earlier kernels; 0: none, or already reported
  std::atomic<uint64_t> before{0};
  std::atomic<uint32_t> channels{0};
  std::atomic<uint32_t> stopped{0};
};

// A slot.
struct Communicator {
  // The members below are guarded by Communicators::mutex.
  bool is_taken = false;
  uint64_t hash = 0;
  int ordinal = 0;  // number among the communicators with this hash in this process

  int group = -1;  // index of the group on the page; -1: none yet, or no room
  std::atomic<bool> is_named{false};
  std::atomic<uint64_t> generation{0};
  std::atomic<uint64_t> enqueued{0};  // number of the newest enqueued collective
  std::atomic<uint64_t> planned{0};   // number of the newest collective of earlier plans
  // all collectives up to this number are complete; written by the communicator's proxy thread only
  std::atomic<uint64_t> done{0};
  Flight flights[kInFlight];
};

// All slots of the process.
struct Communicators {
  std::mutex mutex;
  bool is_open = false;
  muster_progress page{};
  Communicator slots[MUSTER_GROUPS_MAX];
};

}  // namespace muster::nccl
