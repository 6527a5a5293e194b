#include "worker/stacks/blocked_thread.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "worker/stacks/proc_files.h"

namespace muster::worker {
namespace {

#if defined(__x86_64__)
constexpr size_t kFramePointer = 6;  // rbp
constexpr size_t kStackPointer = 7;
constexpr std::array<size_t, 6> kArguments = {5, 4, 1, 10, 8, 9};  // rdi rsi rdx r10 r8 r9
#elif defined(__aarch64__)
constexpr size_t kFramePointer = 29;
constexpr size_t kStackPointer = 31;
constexpr std::array<size_t, 6> kArguments = {0, 1, 2, 3, 4, 5};
#endif
constexpr int kLinksMin = 2;  // a single link may be a coincidence

struct FrameRecord {
  uint64_t next = 0;
  uint64_t return_address = 0;
};

std::optional<FrameRecord> record_at(const ThreadCopy& thread, uint64_t address) {
  FrameRecord record;
  if (address < thread.stack_address || address % sizeof(uint64_t) != 0) return std::nullopt;
  const uint64_t offset = address - thread.stack_address;
  if (thread.stack.size() < sizeof(record) || offset > thread.stack.size() - sizeof(record))
    return std::nullopt;
  std::memcpy(&record, thread.stack.data() + offset, sizeof(record));
  return record;
}

bool begins_chain(const ThreadCopy& thread, const ProcessMap& map, uint64_t address) {
  for (int links = 0; links < kLinksMin; ++links) {
    const auto record = record_at(thread, address);
    if (!record || record->next <= address || map.find(record->return_address) == nullptr)
      return false;
    address = record->next;
  }
  return true;
}

}  // namespace

uint64_t find_frame_record(const ThreadCopy& thread, const ProcessMap& map) {
  const uint64_t end = thread.stack_address + thread.stack.size();
  for (uint64_t address = thread.registers.stack_pointer & ~uint64_t{7}; address < end;
       address += sizeof(uint64_t)) {
    if (begins_chain(thread, map, address)) return address;
  }
  return 0;
}

std::optional<ThreadCopy> copy_blocked_thread(const std::string& proc_root, pid_t pid, pid_t tid,
                                              const ProcessMap& map) {
  const auto position = read_user_position(proc_root, pid, tid);
  if (!position) return std::nullopt;
  ThreadCopy copy{.tid = tid, .result = CopyResult::kCopied};
  copy.registers.instruction = position->instruction;
  copy.registers.stack_pointer = position->stack_pointer;
  copy.registers.dwarf[kStackPointer] = position->stack_pointer;
  // vfork keeps its return address in one of these registers.
  for (size_t i = 0; i < kArguments.size(); ++i)
    copy.registers.dwarf.at(kArguments.at(i)) = position->arguments.at(i);
#if defined(__x86_64__)
  copy.registers.dwarf[kDwarfRegisters - 1] = position->instruction;
#endif
  copy.stack_address = position->stack_pointer & ~uint64_t{7};
  copy.stack.resize(kStackCopyBytesMax);
  // Page by page: the stack's mapping may end after any of them.
  constexpr size_t kPage = 4096;
  size_t size = 0;
  while (size < copy.stack.size()) {
    const uint64_t address = copy.stack_address + size;
    const size_t piece = std::min(copy.stack.size() - size, kPage - address % kPage);
    if (read_memory(pid, address, copy.stack.data() + size, piece) != piece) break;
    size += piece;
  }
  copy.stack.resize(size);
  copy.registers.dwarf[kFramePointer] = find_frame_record(copy, map);
  return copy;
}

}  // namespace muster::worker
