#include "worker/stacks/self_copies.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include <absl/cleanup/cleanup.h>

#include "common/files/ranks_file.h"
#include "common/process/address.h"
#include "common/stacks/self_stacks.h"
#include "worker/stacks/module_file.h"
#include "worker/stacks/proc_files.h"

namespace muster::worker {
namespace {

static_assert(kDwarfRegisters <= kSelfRegisters);
static_assert(kSelfStackBytesMax <= kStackCopyBytesMax);

constexpr Duration kNapMin = std::chrono::microseconds(200);
constexpr Duration kNapMax = std::chrono::milliseconds(5);

template <class T>
bool read_at(int fd, off_t offset, T& out) {
  return pread(fd, &out, sizeof(out), offset) == static_cast<ssize_t>(sizeof(out));
}

class Requester {
 public:
  Requester(const std::string& proc_root, pid_t pid, int fd, uint64_t request)
      : proc_root_(proc_root), pid_(pid), fd_(fd), request_(request) {}

  bool offers() {
    return read_at(fd_, 0, header_) && header_.magic == kSelfStacksMagic &&
           header_.version == kSelfStacksVersion && header_.pid == pid_ &&
           header_.signal >= SIGRTMIN && header_.signal <= SIGRTMAX &&
           handles_signal(proc_root_, pid_, header_.signal);
  }

  SelfCopies request(std::span<const pid_t> tids, bool needs_map, Instant deadline) {
    const std::map<pid_t, size_t> slots = slots_by_thread();
    SelfCopies out;
    std::map<size_t, size_t> waiting;  // index of a copy → its slot
    for (const pid_t tid : tids) {
      ThreadCopy& copy = out.copies.emplace_back();
      copy.tid = tid;
      copy.result = CopyResult::kRefused;
      const auto slot = slots.find(tid);
      if (slot == slots.end()) continue;
      copy.result = CopyResult::kDidNotStop;
      if (!send(tid, needs_map && waiting.empty())) continue;
      waiting.emplace(out.copies.size() - 1, slot->second);
    }
    bool waits_for_map = needs_map && !waiting.empty();
    for (Duration nap = kNapMin; monotonic_now() < deadline; nap = std::min(2 * nap, kNapMax)) {
      std::erase_if(waiting,
                    [&](const auto& entry) { return take(entry.second, out.copies[entry.first]); });
      if (waits_for_map) waits_for_map = !take_map(out);
      if (waiting.empty() && !waits_for_map) break;
      std::this_thread::sleep_for(nap);
    }
    return out;
  }

 private:
  std::map<pid_t, size_t> slots_by_thread() const {
    std::map<pid_t, size_t> slots;
    for (size_t slot = 0; slot < kSelfSlots; ++slot) {
      SelfStackRecord record;
      if (read_at(fd_, self_slot_offset(slot), record) && record.tid > 0)
        slots.emplace(record.tid, slot);
    }
    return slots;
  }

  // A thread that cannot handle the signal now would answer later, when no one waits for it.
  bool send(pid_t tid, bool needs_map) const {
    const auto stat = read_task_stat(proc_root_, pid_, tid);
    if (!stat || std::strchr("TtDZX", stat->state) != nullptr) return false;
    siginfo_t info{};
    info.si_code = SI_QUEUE;
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_ptr = pointer_at(2 * request_ + (needs_map ? 1 : 0));
    return syscall(SYS_rt_tgsigqueueinfo, pid_, tid, header_.signal, &info) == 0;
  }

  bool take(size_t slot, ThreadCopy& copy) const {
    SelfStackRecord record;
    const off_t offset = self_slot_offset(slot);
    if (!read_at(fd_, offset, record) || record.request != request_ || record.tid != copy.tid)
      return false;
    copy.result = CopyResult::kCopied;
    std::copy_n(record.registers.begin(), kDwarfRegisters, copy.registers.dwarf.begin());
    copy.registers.instruction = record.instruction;
    copy.registers.stack_pointer = record.stack_pointer;
    copy.stack_address = record.stack_address;
    copy.stack.resize(std::min<size_t>(record.stack_bytes, kSelfStackBytesMax));
    const ssize_t got = pread(fd_, copy.stack.data(), copy.stack.size(),
                              offset + static_cast<off_t>(kSelfStackOffset));
    copy.stack.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return true;
  }

  bool take_map(SelfCopies& out) const {
    SelfMapsRecord record;
    if (!read_at(fd_, kSelfMapsOffset, record) || record.request != request_) return false;
    std::string text(std::min<uint64_t>(record.bytes, kSelfMapsBytesMax), '\0');
    const ssize_t got = pread(fd_, text.data(), text.size(),
                              kSelfMapsOffset + static_cast<off_t>(kSelfStackOffset));
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    out.map = parse_process_map(text);
    return true;
  }

  const std::string& proc_root_;
  const pid_t pid_;
  const int fd_;
  const uint64_t request_;
  SelfStacksHeader header_;
};

}  // namespace

std::optional<SelfCopies> request_copies(const std::string& proc_root, const std::string& path,
                                         pid_t pid, std::span<const pid_t> tids, uint64_t request,
                                         bool needs_map, Instant deadline) {
  const int fd = path.empty() ? -1 : open_ranks_file(path);
  if (fd < 0) return std::nullopt;
  const absl::Cleanup close_file = [fd] { close(fd); };
  Requester requester(proc_root, pid, fd, request);
  if (!requester.offers()) return std::nullopt;
  return requester.request(tids, needs_map, deadline);
}

}  // namespace muster::worker
