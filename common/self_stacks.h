// A process' own copies of its threads, for a watcher that may not trace it (Yama, seccomp, a missing capability): the watcher asks each
// thread by a signal, and the thread writes its registers and the used part of its stack into a file beside the progress page. Unwinding
// and names are the watcher's business, as for copies that it makes itself.
//
// The file, little endian; slots are written by one thread each, what is not written takes no room on the disk:
//
//   offset                 what
//   0                      SelfStacksHeader
//   (1 + s) x kSelfSlotBytes   slot s: SelfStackRecord, then from kSelfStackOffset on `stack_bytes` bytes from `stack_address` on
//   (1 + kSelfSlots) x kSelfSlotBytes   SelfMapsRecord, then from kSelfStackOffset on `bytes` bytes of /proc/self/maps
//
// A thread is asked by the header's signal, queued with a number (sival_ptr): 2 x request, and 1 more for a copy of the map. A record with
// that request is whole. Only threads that have a slot may be asked: the handler runs on a stack of its own, because computing threads may
// use the stack pointer as a general register (oneDNN's generated kernels do).
//
// The handler makes system calls and nothing else: no lock, no memory, no page fault on a full disk, because it writes and does not map. A
// thread whose file system does not answer waits in the handler as it would wait with its log.
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
constexpr size_t kSelfStackBytesMax = 128 << 10;  // what is used of most stacks is a few KiB
constexpr size_t kSelfStackOffset = 4096;
constexpr size_t kSelfSlotBytes = kSelfStackOffset + kSelfStackBytesMax;
constexpr size_t kSelfSlots = 256;  // threads of a rank that answer
constexpr size_t kSelfMapsBytesMax = 4 << 20;
constexpr size_t kSelfRegisters = 33;  // of the processor that has most

struct SelfStacksHeader {
  uint64_t magic = kSelfStacksMagic;
  uint32_t version = kSelfStacksVersion;
  int32_t pid = 0;
  int32_t signal = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(SelfStacksHeader) == 24);

struct SelfStackRecord {
  int32_t tid = 0;  // whose slot it is; 0: nobody's
  uint32_t stack_bytes = 0;
  uint64_t request = 0;  // the newest that was answered; 0: none
  uint64_t stack_address = 0;
  uint64_t instruction = 0;
  uint64_t stack_pointer = 0;
  std::array<uint64_t, kSelfRegisters> registers{};  // as DWARF numbers the processor's
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

// Beside the progress page.
std::string self_stacks_path(const std::string& page_path);

// Makes the file and handles the signal from now on, in this process, for good. Once, before threads that are to answer.
absl::Status offer_self_stacks(const std::string& path);

// While it lives its thread has a slot and answers, if the process has offered it and there is a slot left. On the thread's own stack, or
// thread_local.
class SelfStackThread {
 public:
  SelfStackThread();
  ~SelfStackThread();
  SelfStackThread(const SelfStackThread&) = delete;
  SelfStackThread& operator=(const SelfStackThread&) = delete;

 private:
  bool owns_slot_ = false;
  void* handler_stack_ = nullptr;  // mapped here; null: the thread has one already
};

// For threads that somebody else has made and keeps: the calling one answers from now on until it ends.
void answer_for_stack();

}  // namespace muster
