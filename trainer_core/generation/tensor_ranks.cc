#include "trainer_core/generation/tensor_ranks.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <iostream>
#include <map>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/process/exit_code.h"
#include "common/text/escape.h"
#include "trainer_core/base/check.h"
#include "trainer_core/base/mesh_rules.h"
#include "trainer_core/comm/shm.h"
#include "trainer_core/comm/transport_group.h"

namespace muster::trainer {
namespace {

constexpr std::chrono::seconds kConnectTime{60};
// The limit of one exchange of rank 0. Exchanges of a step take milliseconds; followers may load
// their part of the model much later than rank 0.
constexpr std::chrono::minutes kLeaderTime{10};
// A follower waits for the next step as long as the server has no requests: 10 years.
constexpr std::chrono::hours kFollowerTime{24 * 365 * 10};
// The time in which followers end after rank 0 has left. Their exchanges fail at once.
constexpr std::chrono::seconds kLeaveTime{5};
constexpr useconds_t kLeavePoll = 5000;

absl::StatusOr<std::shared_ptr<Transport>> connect(std::vector<ShmSeat> seats, int rank) {
  std::map<int, std::string> listeners;
  for (size_t i = 0; i < seats.size(); ++i)
    listeners[static_cast<int>(i)] = seats[i].listener().name();
  const auto size = static_cast<int>(seats.size());
  const ShmSeat own = std::move(seats[static_cast<size_t>(rank)]);
  seats.clear();
  return connect_shm(own, {.rank = rank,
                           .world_size = size,
                           .listeners = std::move(listeners),
                           .deadline = monotonic_now() + kConnectTime,
                           .timeout = rank == 0 ? std::chrono::milliseconds(kLeaderTime)
                                                : std::chrono::milliseconds(kFollowerTime)});
}

// Runs a follower and returns its exit code.
int run_follower(pid_t leader, std::vector<ShmSeat> seats, int rank, TensorRanks::Follow follow) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != leader) return to_int(ExitCode::kPeerLost);  // it ended before the call
  for (const int ignored : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) signal(ignored, SIG_IGN);
  auto transport = connect(std::move(seats), rank);
  const absl::Status status = transport.ok()
                                  ? follow(std::make_unique<TensorRanks>(*std::move(transport)))
                                  : transport.status();
  if (status.ok()) return 0;
  // The loss of a peer is reported by rank 0.
  if (!absl::IsUnavailable(status)) {
    std::cerr << "muster: error: rank " << rank << ": "
              << escape_controls(std::string(status.message())) << std::endl;
  }
  return to_int(ExitCode::kFailure);
}

}  // namespace

absl::Status check_tensor_ranks(const ModelConfig& model, int32_t ranks) {
  if (ranks == 1) return absl::OkStatus();
  MeshShape shape;
  shape.ici[static_cast<size_t>(MeshAxis::kTensor)] = ranks;
  const auto conflicts = mesh_conflicts(mesh_demands(model, ranks, 1), shape);
  if (conflicts.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the model cannot be divided among ", ranks, " processes: ", conflicts.front()));
}

absl::StatusOr<std::unique_ptr<TensorRanks>> TensorRanks::start(int size, Follow follow) {
  std::vector<ShmSeat> seats;
  for (int i = 0; i < size; ++i) {
    auto seat = ShmSeat::take(size);
    if (!seat.ok()) return seat.status();
    seats.push_back(*std::move(seat));
  }
  const pid_t leader = getpid();
  std::vector<pid_t> followers;
  std::cout.flush();
  for (int rank = 1; rank < size; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) _exit(run_follower(leader, std::move(seats), rank, follow));
    if (pid < 0) {
      const absl::Status status = errno_status(errno, "starting a rank");
      for (const pid_t started : followers) kill(started, SIGKILL);
      for (const pid_t started : followers) waitpid(started, nullptr, 0);
      return status;
    }
    followers.push_back(pid);
  }
  auto transport = connect(std::move(seats), 0);
  if (!transport.ok()) {
    for (const pid_t pid : followers) kill(pid, SIGKILL);
    for (const pid_t pid : followers) waitpid(pid, nullptr, 0);
    return transport.status();
  }
  auto ranks = std::make_unique<TensorRanks>(*std::move(transport));
  ranks->followers_ = std::move(followers);
  return ranks;
}

TensorRanks::TensorRanks(std::shared_ptr<Transport> transport)
    : group_(make_world_group(std::move(transport), "tensor", nullptr)) {}

TensorRanks::~TensorRanks() {
  group_.reset();
  const Instant deadline = monotonic_now() + kLeaveTime;
  for (const pid_t pid : followers_) {
    while (waitpid(pid, nullptr, WNOHANG) == 0 && monotonic_now() < deadline) usleep(kLeavePoll);
    if (kill(pid, SIGKILL) == 0) waitpid(pid, nullptr, 0);
  }
}

absl::Status TensorRanks::agree(const absl::Status& status) {
  std::vector<float> failed(static_cast<size_t>(size()));
  failed[static_cast<size_t>(rank())] = status.ok() ? 0 : 1;
  const absl::Status exchanged = group_->all_reduce_max(failed, "loaded");
  if (!status.ok()) return status;
  if (!exchanged.ok()) return exchanged;
  for (size_t i = 0; i < failed.size(); ++i) {
    if (failed[i] != 0)
      return absl::UnavailableError(absl::StrCat("rank ", i, " could not load the model"));
  }
  return absl::OkStatus();
}

absl::Status TensorRanks::check() const {
  for (size_t i = 0; i < followers_.size(); ++i) {
    siginfo_t info{};
    // The process remains, so that its id is not that of another one.
    if (waitid(P_PID, static_cast<id_t>(followers_[i]), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
      continue;
    return absl::UnavailableError(absl::StrCat(
        "rank ", i + 1, " of the model (process ", followers_[i], ") ",
        info.si_code == CLD_EXITED ? absl::StrCat("has ended with exit code ", info.si_status)
                                   : absl::StrCat("was ended by signal ", info.si_status)));
  }
  return absl::OkStatus();
}

}  // namespace muster::trainer
