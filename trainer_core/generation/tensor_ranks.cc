#include "trainer_core/generation/tensor_ranks.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>

#include "common/files/errno_status.h"
#include "common/process/exit_code.h"
#include "trainer_core/base/mesh_rules.h"
#include "trainer_core/comm/shm.h"
#include "trainer_core/comm/transport_group.h"

namespace muster::trainer {
namespace {

constexpr std::chrono::seconds kConnectTime{60};
// The limit of an exchange of a follower, which waits for the next step as long as the server has
// no requests, and of all ranks while they load the model: 10 years.
constexpr std::chrono::hours kWaitTime{24 * 365 * 10};

absl::StatusOr<std::shared_ptr<Transport>> connect(std::vector<ShmSeat> seats, int rank,
                                                   std::function<absl::Status()> check = {}) {
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
                           .timeout = kWaitTime,
                           .check = std::move(check)});
}

// Runs a follower and returns its exit code. Rank 0 reports its error.
int run_follower(pid_t leader, std::vector<ShmSeat> seats, int rank, RankProcesses& processes,
                 TensorRanks::Follow follow) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != leader) return to_int(ExitCode::kPeerLost);  // it ended before the call
  for (const int ignored : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) signal(ignored, SIG_IGN);
  absl::Status status;
  try {
    auto transport = connect(std::move(seats), rank);
    status = transport.ok() ? follow(std::make_unique<TensorRanks>(*std::move(transport)))
                            : transport.status();
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("the machine has too little memory for its part");
  } catch (const std::exception& error) {
    status = absl::InternalError(error.what());
  }
  if (status.ok()) return to_int(ExitCode::kOk);
  if (absl::IsUnavailable(status)) return to_int(ExitCode::kPeerLost);
  processes.report(rank, status);
  return to_int(ExitCode::kFailure);
}

// The time in which the kernel removes threads that have been joined, such as readers of files.
constexpr std::chrono::seconds kThreadsTime{5};
constexpr useconds_t kThreadsPoll = 1000;

// Returns the number of threads of the process, once there is one or kThreadsTime is over.
size_t threads_of_process() {
  const Instant deadline = monotonic_now() + kThreadsTime;
  while (true) {
    std::error_code error;
    const std::filesystem::directory_iterator tasks("/proc/self/task", error);
    if (error) return 1;
    const auto count = static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
    if (count == 1 || monotonic_now() >= deadline) return count;
    usleep(kThreadsPoll);
  }
}

}  // namespace

absl::Status check_tensor_ranks(const ModelConfig& model, int32_t ranks) {
  if (ranks == 1) return absl::OkStatus();
  MeshShape shape;
  shape.ici[static_cast<size_t>(MeshAxis::kTensor)] = ranks;
  const auto conflicts = mesh_conflicts(mesh_demands(model, ranks, 1), shape);
  if (conflicts.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the model cannot be divided among ", ranks, " processes: ",
      absl::StrReplaceAll(conflicts.front(), {{"ici_tensor_parallelism", "--tensor-parallel"}})));
}

absl::StatusOr<std::unique_ptr<TensorRanks>> TensorRanks::start(int size, Follow follow) {
  if (const size_t threads = threads_of_process(); threads > 1)
    return absl::InternalError(
        absl::StrCat("ranks are copies of a process with one thread, and it has ", threads));
  std::vector<ShmSeat> seats;
  for (int i = 0; i < size; ++i) {
    auto seat = ShmSeat::take(size);
    if (!seat.ok()) return seat.status();
    seats.push_back(*std::move(seat));
  }
  auto processes = RankProcesses::make(size);
  if (!processes.ok()) return processes.status();
  const pid_t leader = getpid();
  std::cout.flush();
  for (int rank = 1; rank < size; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) _exit(run_follower(leader, std::move(seats), rank, *processes, follow));
    if (pid < 0) {
      const absl::Status status = errno_status(errno, "starting a rank");
      processes->end(std::chrono::seconds(0));
      return status;
    }
    processes->add(pid);
  }
  auto transport = connect(std::move(seats), 0, [&] { return processes->check(); });
  if (!transport.ok()) {
    processes->end(std::chrono::seconds(0));
    return transport.status();
  }
  auto ranks = std::make_unique<TensorRanks>(*std::move(transport));
  ranks->followers_ = *std::move(processes);
  return ranks;
}

TensorRanks::TensorRanks(std::shared_ptr<Transport> transport)
    : transport_(std::move(transport)), group_(make_world_group(transport_, "tensor", nullptr)) {}

TensorRanks::~TensorRanks() {
  group_.reset();
  transport_.reset();
  if (followers_) followers_->end();
}

absl::Status TensorRanks::agree(const absl::Status& status) {
  if (!status.ok()) return status;
  const absl::Status loaded = group_->barrier("loaded");
  return loaded.ok() ? loaded : cause_of(loaded);
}

}  // namespace muster::trainer
