#include "trainer_core/generation/rank_processes.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/process/exit_code.h"
#include "common/time/time.h"

namespace muster::trainer {

struct RankError {
  std::atomic<int> code;             // an absl::StatusCode, written last; 0: none
  std::array<char, 4000> message{};  // ends with 0; longer messages are cut
};

namespace {

// The time from a failed exchange until the process that caused it has ended: the kernel closes its
// connections first.
constexpr std::chrono::seconds kCauseTime{1};
constexpr useconds_t kPoll = 5000;

}  // namespace

absl::StatusOr<RankProcesses> RankProcesses::make(int size) {
  const size_t bytes = static_cast<size_t>(size) * sizeof(RankError);
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return errno_status(errno, "sharing memory between the ranks");
  RankProcesses processes;
  processes.errors_ = {static_cast<RankError*>(memory),
                       [bytes](RankError* errors) { munmap(errors, bytes); }};
  return processes;
}

void RankProcesses::report(int rank, const absl::Status& error) {
  RankError& slot = errors_.get()[rank];
  const std::string_view text(error.message().data(), error.message().size());
  std::ranges::copy(text.substr(0, slot.message.size() - 1), slot.message.begin());
  slot.code = static_cast<int>(error.code());
}

std::optional<RankProcesses::End> RankProcesses::end_of(size_t follower) const {
  siginfo_t info{};
  // The process remains, so that its id is not that of another one.
  if (waitid(P_PID, static_cast<id_t>(pids_[follower]), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return std::nullopt;
  const size_t rank = follower + 1;
  const RankError& slot = errors_.get()[rank];
  const std::string name =
      absl::StrCat("rank ", rank, " of the model (process ", pids_[follower], ") ");
  if (info.si_code != CLD_EXITED) {
    return End{.error = absl::UnavailableError(absl::StrCat(
                   name, "was ended by signal ", info.si_status,
                   info.si_status == SIGKILL ? ", as the kernel does if memory runs out" : ""))};
  }
  if (info.si_status == to_int(ExitCode::kOk) || info.si_status == to_int(ExitCode::kPeerLost))
    return End{.is_victim = true,
               .error = absl::UnavailableError(absl::StrCat(name, "has lost another rank"))};
  if (slot.code != 0) {
    return End{.error = absl::Status(static_cast<absl::StatusCode>(slot.code.load()),
                                     absl::StrCat("rank ", rank, ": ", slot.message.data()))};
  }
  return End{.error = absl::UnavailableError(
                 absl::StrCat(name, "has ended with exit code ", info.si_status))};
}

absl::Status RankProcesses::check() const {
  for (size_t i = 0; i < pids_.size(); ++i)
    if (const auto end = end_of(i)) return end->is_victim ? cause_of(end->error) : end->error;
  return absl::OkStatus();
}

absl::Status RankProcesses::cause_of(const absl::Status& error) const {
  const Instant deadline = monotonic_now() + kCauseTime;
  while (true) {
    bool all_ended = true;
    for (size_t i = 0; i < pids_.size(); ++i) {
      const auto end = end_of(i);
      if (end && !end->is_victim) return end->error;
      all_ended = all_ended && end;
    }
    if (all_ended || monotonic_now() >= deadline) return error;
    usleep(kPoll);
  }
}

void RankProcesses::end(std::chrono::seconds wait) {
  const Instant deadline = monotonic_now() + wait;
  for (const pid_t pid : pids_) {
    while (waitpid(pid, nullptr, WNOHANG) == 0 && monotonic_now() < deadline) usleep(kPoll);
    if (kill(pid, SIGKILL) == 0) waitpid(pid, nullptr, 0);
  }
  pids_.clear();
}

}  // namespace muster::trainer
