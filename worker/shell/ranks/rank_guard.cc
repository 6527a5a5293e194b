#include "worker/shell/ranks/rank_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <new>
#include <string_view>

#include <absl/memory/memory.h>

#include "common/files/errno_status.h"
#include "common/job/limits.h"

namespace muster::worker {
namespace {

constexpr Duration kWakeUp = std::chrono::milliseconds(100);
// Ranks of a node and of the attempts that they replace, which may still be ending.
constexpr size_t kGroupsMax = size_t{kRanksPerNodeMax} * 4;
// The guard acts after this part of the lease, which the coordinator counts from the newest
// heartbeat: the guard is earlier.
constexpr int64_t kLeaseParts = 5;
constexpr int64_t kPartsUntilAction = 4;

// A loop that is busy for a moment is not taken for one that stands still. With leases of less than
// 1.25 s the guard therefore acts after the lease.
constexpr Duration kGuardLimitMin = 4 * kGuardBeat;

constexpr std::string_view kName = "muster-guard";

// Replaces the command line that ps shows, because people and programs find workers by it.
void show_name(std::span<char*> command_line) {
  for (char* word : command_line) std::memset(word, 0, std::strlen(word));
  if (command_line.empty() || command_line.back() == nullptr) return;
  // The words lie one after another, so a short first word leaves room only if others follow.
  char* first = command_line.front();
  const char* last = command_line.back();
  if (last - first > std::ssize(kName)) std::memcpy(first, kName.data(), kName.size());
}

// Readers of the worker's output and sockets wait for its end, not for the guard's.
void close_all() {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, 0U, ~0U, 0U) == 0) return;
#endif
  constexpr long kDescriptorsMax = 65'536;
  const long limit = std::min(sysconf(_SC_OPEN_MAX), kDescriptorsMax);
  for (int fd = 0; fd < limit; ++fd) close(fd);
}

}  // namespace

// A group is 0 (none), positive (a rank's) or negative (the guard has killed it).
struct RankGuard::Page {
  std::atomic<uint64_t> beats{0};
  std::atomic<int64_t> limit_ns{0};  // 0: none
  std::array<std::atomic<int32_t>, kGroupsMax> groups{};

  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  void kill_all() {
    for (std::atomic<int32_t>& group : groups) {
      int32_t number = group;
      if (number > 0 && group.compare_exchange_strong(number, -number)) kill(-number, SIGKILL);
    }
  }

  // Runs in the guard process, which has only system calls and this page.
  [[noreturn]] void watch(pid_t worker) {
    uint64_t seen = beats;
    int64_t silent_ns = 0;
    while (getppid() == worker) {
      const timespec pause{0, kWakeUp.count()};
      nanosleep(&pause, nullptr);
      const uint64_t now = beats;
      silent_ns = now == seen ? silent_ns + kWakeUp.count() : 0;
      seen = now;
      const int64_t limit = limit_ns;
      if (limit > 0 && silent_ns >= limit) kill_all();
    }
    _exit(0);
  }
};

absl::StatusOr<std::unique_ptr<RankGuard>> RankGuard::start(std::span<char*> command_line) {
  void* memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                      /*offset=*/0);
  if (memory == MAP_FAILED) return errno_status(errno, "mapping the guard's page");
  auto guard = absl::WrapUnique(new RankGuard(new (memory) Page));
  const pid_t worker = getpid();
  guard->pid_ = fork();
  if (guard->pid_ < 0) return errno_status(errno, "starting the ranks' guard");
  if (guard->pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, kName.data());
    show_name(command_line);
    setsid();  // no signal of the worker's terminal or process group is for the guard
    for (const int signo : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) signal(signo, SIG_IGN);
    close_all();
    guard->page_->watch(worker);
  }
  return guard;
}

RankGuard::~RankGuard() {
  // Another process may have ended it, and the reaper may have collected it.
  if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  munmap(page_, sizeof(Page));
}

void RankGuard::set_lease(Duration lease) {
  const Duration limit = lease / kLeaseParts * kPartsUntilAction;
  page_->limit_ns = lease.count() <= 0 ? 0 : std::max(limit, kGuardLimitMin).count();
}

void RankGuard::show_life() { ++page_->beats; }

void RankGuard::add(pid_t group) {
  for (std::atomic<int32_t>& slot : page_->groups) {
    if (slot != 0) continue;
    slot = group;
    return;
  }
}

void RankGuard::remove(pid_t group) {
  for (std::atomic<int32_t>& slot : page_->groups) {
    if (slot == group || slot == -group) slot = 0;
  }
}

bool RankGuard::has_killed(pid_t group) const {
  for (const std::atomic<int32_t>& slot : page_->groups) {
    if (slot == -group) return true;
  }
  return false;
}

}  // namespace muster::worker
