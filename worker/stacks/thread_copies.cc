#include "worker/stacks/thread_copies.h"

#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <system_error>
#include <thread>

#include "common/process/address.h"
#include "worker/stacks/proc_files.h"

namespace muster::worker {
namespace {

// Wait for threads to stop: spins a little, because a stopped thread waits for us; then sleeps,
// because the others may wait for the processor.
constexpr Duration kSpin = std::chrono::microseconds(500);
constexpr Duration kStopNapMin = std::chrono::microseconds(50);
constexpr Duration kStopNapMax = std::chrono::milliseconds(2);
// A disk read takes less; a longer uninterruptible sleep is a finding.
constexpr Duration kUninterruptible = std::chrono::milliseconds(200);

constexpr int kNice = -10;

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

class Tracer {
 public:
  Tracer(pid_t pid, std::span<const pid_t> tids, const ProcessMap& map, Instant deadline)
      : pid_(pid), map_(map), deadline_(deadline), buffer_(kStackCopyBytesMax) {
    copies_.reserve(tids.size());
    for (const pid_t tid : tids) copies_.push_back({.tid = tid});
    // One iovec per page: the kernel copies whole iovecs, and the stack's mapping may end after any
    // page.
    pieces_.reserve(kStackCopyBytesMax / page_bytes() + 2);
  }

  std::vector<ThreadCopy> run() {
    // Other threads stay stopped while this one waits for a processor. Best effort: a missing
    // permission does no harm.
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
    for (ThreadCopy& copy : copies_) interrupt(copy);
    wait_for_stops();
    for (const auto& [tid, copy] : waiting_) copy->result = CopyResult::kDidNotStop;
    return std::move(copies_);
  }

 private:
  void interrupt(ThreadCopy& copy) {
    if (ptrace(PTRACE_SEIZE, copy.tid, nullptr, nullptr) != 0) {
      copy.result = errno == ESRCH ? CopyResult::kGone : CopyResult::kRefused;
      return;
    }
    // Fails if the thread has ended since, which waitpid reports.
    ptrace(PTRACE_INTERRUPT, copy.tid, nullptr, nullptr);
    waiting_[copy.tid] = &copy;
  }

  void wait_for_stops() {
    Instant newest = monotonic_now();
    Duration nap = kStopNapMin;
    while (!waiting_.empty()) {
      siginfo_t stop{};
      // Waits for stops only. The exit status of our own child is not ours to take: its parent's
      // thread waits for it.
      constexpr int kStops = WSTOPPED | WNOHANG | __WALL | __WNOTHREAD;
      const int waited = waitid(P_ALL, 0, &stop, kStops);
      if (waited != 0 && errno != EINTR) waiting_.clear();  // none is left
      const Instant now = monotonic_now();
      if (waited == 0 && stop.si_pid != 0) {
        handle(stop, now);
        newest = now;
        nap = kStopNapMin;
      } else if (now >= deadline_ || (now - newest > kUninterruptible && all_uninterruptible())) {
        return;
      } else if (now - newest < kSpin) {
        sched_yield();
      } else {
        forget_ended();
        std::this_thread::sleep_for(nap);
        nap = std::min(2 * nap, kStopNapMax);
      }
    }
  }

  void handle(const siginfo_t& stop, Instant seen) {
    const auto found = waiting_.find(stop.si_pid);
    size_t size = 0;
    if (found != waiting_.end()) size = copy_stopped(*found->second);
    // A stop before signal delivery must pass the signal on; in other stops the signal is part of
    // the event's name.
    const bool delivers = stop.si_status >> 8 == 0;
    const auto signo = static_cast<uint64_t>(delivers ? stop.si_status : 0);
    ptrace(PTRACE_DETACH, stop.si_pid, nullptr, pointer_at(signo));
    if (found == waiting_.end()) return;
    found->second->held = monotonic_now() - seen;
    std::vector<std::byte>& stack = found->second->stack;
    stack.assign(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(size));
    waiting_.erase(found);
  }

  // Ends are not waited for, so they are polled.
  void forget_ended() {
    std::erase_if(waiting_, [this](const auto& entry) {
      const auto stat = read_task_stat("/proc", pid_, entry.first);
      return !stat || stat->state == 'Z' || stat->state == 'X';
    });
  }

  // Returns the number of stack bytes in the buffer, which move to the copy once the thread runs
  // again.
  size_t copy_stopped(ThreadCopy& copy) {
    switch (read_registers(copy.tid, copy.registers)) {
      case RegistersRead::kYes:
        copy.result = CopyResult::kCopied;
        break;
      case RegistersRead::kOtherWordSize:
        copy.result = CopyResult::kOtherWordSize;
        return 0;
      case RegistersRead::kNotStopped:
        return 0;  // killed since it stopped
    }
    const uint64_t page = page_bytes();
    copy.stack_address = (copy.registers.stack_pointer - kRedZoneBytes) & ~uint64_t{7};
    const uint64_t used = map_.writable_end(copy.registers.stack_pointer) - copy.stack_address;
    const uint64_t limit =
        std::min({used, kStackCopyBytesMax, kStackCopiesBytesMax - copied_bytes_});
    pieces_.clear();
    for (uint64_t done = 0; done < limit;) {
      const uint64_t address = copy.stack_address + done;
      const uint64_t size = std::min(limit - done, page - address % page);
      pieces_.push_back({pointer_at(address), size});
      done += size;
    }
    iovec local{buffer_.data(), limit};
    const ssize_t got = process_vm_readv(pid_, &local, 1, pieces_.data(), pieces_.size(), 0);
    const size_t size = got > 0 ? static_cast<size_t>(got) : 0;
    copied_bytes_ += size;
    return size;
  }

  bool all_uninterruptible() const {
    return std::ranges::all_of(waiting_, [this](const auto& entry) {
      const auto stat = read_task_stat("/proc", pid_, entry.first);
      return stat && stat->state == 'D';
    });
  }

  const pid_t pid_;
  const ProcessMap& map_;
  const Instant deadline_;
  std::vector<std::byte> buffer_;
  std::vector<iovec> pieces_;
  std::vector<ThreadCopy> copies_;
  std::map<pid_t, ThreadCopy*> waiting_;  // interrupted, not yet seen to stop or end
  size_t copied_bytes_ = 0;
};

}  // namespace

std::vector<ThreadCopy> copy_threads(pid_t pid, std::span<const pid_t> tids, const ProcessMap& map,
                                     Instant deadline) {
  std::vector<ThreadCopy> copies;
  std::thread tracer([&] { copies = Tracer(pid, tids, map, deadline).run(); });
  tracer.join();
  return copies;
}

}  // namespace muster::worker
