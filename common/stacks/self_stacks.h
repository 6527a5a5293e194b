// Stack copies that a process makes of its own threads, for a watcher that is not allowed to trace
// the process (Yama, seccomp, a missing capability). The watcher signals the threads, and each
// thread writes its registers and the used part of its stack into a file beside the progress page.
// The watcher unwinds and symbolises these copies in the same way as copies that it makes itself.
//
// The file is little endian. Each slot is written by one thread; unwritten parts are sparse.
//
//   offset                           content
//   0                                SelfStacksHeader
//   (1 + s) x kSelfSlotBytes         slot s: SelfStackRecord, then, from kSelfStackOffset on,
//                                    `stack_bytes` bytes from address `stack_address`
//   (1 + kSelfSlots) x kSelfSlotBytes  SelfMapsRecord, then, from kSelfStackOffset on,
//                                    `bytes` bytes of /proc/self/maps
//
// The watcher queues the header's signal with a number (sival_ptr): 2 x request, plus 1 to request
// a copy of the map. A record that holds this request is complete. The handler runs on an alternate
// stack, because computing threads may use the stack pointer as a general register (oneDNN's
// generated kernels do). Only a thread with a slot is sure to have such a stack, so the watcher
// signals only threads with a slot.
//
// The handler only makes system calls: it takes no lock, allocates nothing, and writes to the file
// instead of mapping it, so a full disk raises no SIGBUS. If the file system hangs, the thread
// waits in the handler as it would wait in a write to its log.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <absl/status/status.h>

namespace muster {

constexpr uint64_t kSelfStacksMagic = 0x4B545346'4C45534DULL;  // "MSELFSTK"
constexpr uint32_t kSelfStacksVersion = 1;
constexpr size_t kSelfStackBytesMax = 128 << 10;  // most stacks use a few KiB
constexpr size_t kSelfStackOffset = 4096;
constexpr size_t kSelfSlotBytes = kSelfStackOffset + kSelfStackBytesMax;
constexpr size_t kSelfSlots = 256;  // maximum number of threads of a rank that can answer
constexpr size_t kSelfMapsBytesMax = 4 << 20;
constexpr size_t kSelfRegisters = 33;  // registers of the processor that has the most

struct SelfStacksHeader {
  uint64_t magic = kSelfStacksMagic;
  uint32_t version = kSelfStacksVersion;
  int32_t pid = 0;
  int32_t signal = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(SelfStacksHeader) == 24);

struct SelfStackRecord {
  int32_t tid = 0;  // the slot's thread; 0: the slot is free
  uint32_t stack_bytes = 0;
  uint64_t request = 0;  // newest answered request; 0: none
  uint64_t stack_address = 0;
  uint64_t instruction = 0;
  uint64_t stack_pointer = 0;
  std::array<uint64_t, kSelfRegisters> registers{};  // in the processor's DWARF numbering
};
static_assert(sizeof(SelfStackRecord) == 40 + 8 * kSelfRegisters &&
              sizeof(SelfStackRecord) <= kSelfStackOffset);

struct SelfMapsRecord {
  uint64_t request = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(SelfMapsRecord) == 16);

constexpr off_t self_slot_offset(size_t slot) {
  return static_cast<off_t>((1 + slot) * kSelfSlotBytes);
}
constexpr off_t kSelfMapsOffset = self_slot_offset(kSelfSlots);

// Returns the path of the file beside the progress page.
std::string self_stacks_path(const std::string& page_path);

// Creates the file and installs the signal handler, which stays installed until the process ends.
// Call it once, before any thread that has to answer starts.
absl::Status offer_self_stacks(const std::string& path);

// Owns a slot for the constructing thread while it exists; the thread answers if the process has
// called offer_self_stacks() and a slot is free. The object lives on the thread's own stack, or is
// thread_local.
class SelfStackThread {
 public:
  SelfStackThread();
  ~SelfStackThread();
  SelfStackThread(const SelfStackThread&) = delete;
  SelfStackThread& operator=(const SelfStackThread&) = delete;

 private:
  bool owns_slot_ = false;
  // mapped by this object; null: the thread already had a handler stack
  void* handler_stack_ = nullptr;
};

// Gives the calling thread a slot until the thread ends. For threads that other code creates and
// owns.
void answer_for_stack();

}  // namespace muster
