#include "tests/simulation/trainers.h"

#include <csignal>
#include <utility>

#include "common/exit_code.h"

namespace muster::simulation {
namespace {

constexpr int64_t kCheckpointEvery = 5;
// How long a rank that was asked to leave waits for its peers.
constexpr Duration kPeersWait = std::chrono::seconds(3);

LaunchKey launch_of(const Process& process, const worker::RankKey& key) {
  return {{process.store, key.job}, key.attempt};
}

}  // namespace

int32_t Trainers::spawn(int host, StoreId store, const worker::RankKey& key, int32_t world_size,
                        std::function<void(const ProcessEnd&)> on_reaped) {
  const int32_t pid = next_pid_++;
  Process& process = processes_[{host, key}];
  process = Process{};
  process.pid = pid;
  process.host = host;
  process.store = store;
  process.world_size = world_size;
  process.running = true;
  process.deaf = random_.chance(0.1);
  process.on_reaped = std::move(on_reaped);
  came_up_[launch_of(process, key)].insert(key.rank);
  scheduler_.after(random_.between_ms(20, 300), [this, host, key, pid] { tick({host, key}, pid); });
  return pid;
}

Process* Trainers::find(const ProcessKey& key, int32_t pid) {
  const auto it = processes_.find(key);
  return it == processes_.end() || it->second.pid != pid || !it->second.running ? nullptr
                                                                                : &it->second;
}

bool Trainers::all_up(const LaunchKey& launch, int32_t world_size) const {
  const auto it = came_up_.find(launch);
  return it != came_up_.end() && std::ssize(it->second) == world_size;
}

void Trainers::tick(ProcessKey key, int32_t pid) {
  Process* process = find(key, pid);
  if (process == nullptr) return;
  const LaunchKey launch = launch_of(*process, key.second);
  const JobNature& nature = natures_[launch.first];
  const auto leave = [&](ExitCode code) {
    end(key, *process, {to_int(code), 0, process->step}, random_.between_ms(1, 50));
  };
  if (broken_.contains(launch)) {
    // One in ten hangs in its collective instead, until someone kills it.
    if (!random_.chance(0.1)) leave(ExitCode::kPeerLost);
    return;
  }
  if (nature.bad_input_rank == key.second.rank.value()) return leave(ExitCode::kBadInput);
  if (process->leaving) return;  // holds its state
  if (all_up(launch, process->world_size)) {
    if (process->step < 0) process->step = checkpoints_[launch.first];
    ++process->step;
    const bool asked = std::exchange(process->asked, false);
    saved_on_request_ += asked ? 1 : 0;
    if (asked || process->step % kCheckpointEvery == 0) checkpoints_[launch.first] = process->step;
    if (process->step == nature.nan_step && key.second.rank == Rank(0))
      return leave(ExitCode::kNotFinite);
    if (process->step >= nature.steps) return leave(ExitCode::kOk);
    if (crashing_ && random_.chance(nature.crash_per_step)) {
      if (random_.chance(0.5)) return leave(ExitCode::kFailure);
      return end(key, *process, {-1, SIGSEGV, process->step}, random_.between_ms(1, 50));
    }
  }
  scheduler_.after(nature.step_time, [this, key, pid] { tick(key, pid); });
}

void Trainers::end(const ProcessKey& key, Process& process, ProcessEnd end, Duration reap_delay) {
  process.running = false;
  const LaunchKey launch = launch_of(process, key.second);
  if (end.signal == 0 && end.exit_code == 0) {
    succeeded_[launch].insert(key.second.rank);
  } else {
    broken_.insert(launch);
  }
  scheduler_.after(reap_delay, [this, key, pid = process.pid, end] {
    const auto it = processes_.find(key);
    if (it == processes_.end() || it->second.pid != pid) return;
    const auto on_reaped = std::move(it->second.on_reaped);
    processes_.erase(it);
    on_reaped(end);
  });
}

void Trainers::signal(int host, const worker::RankKey& key, int signo) {
  const auto it = processes_.find({host, key});
  if (it == processes_.end() || !it->second.running) return;
  Process& process = it->second;
  if (signo == SIGKILL) {
    end({host, key}, process, {-1, SIGKILL, process.step}, random_.between_ms(1, 30));
  } else if (signo == SIGUSR2) {
    process.asked = true;
  } else if (!process.deaf && !process.leaving) {
    leave({host, key}, process);
  }
}

void Trainers::leave(const ProcessKey& key, Process& process) {
  process.leaving = true;
  const LaunchKey launch = launch_of(process, key.second);
  std::map<ProcessKey, Process*> asked;
  for (auto& [other, peer] : processes_) {
    if (peer.running && peer.leaving && launch_of(peer, other.second) == launch)
      asked[other] = &peer;
  }
  const auto end_it = [this](const ProcessKey& at, Process& which) {
    end(at, which, {to_int(ExitCode::kPreempted), 0, which.step}, random_.between_ms(10, 800));
  };
  if (std::ssize(asked) == process.world_size) {
    if (all_up(launch, process.world_size)) checkpoints_[launch.first] = process.step;
    left_together_ += process.world_size > 1 ? 1 : 0;
    for (auto& [at, which] : asked) end_it(at, *which);
    return;
  }
  scheduler_.after(kPeersWait, [this, key, pid = process.pid, end_it] {
    if (Process* alone = find(key, pid); alone != nullptr) end_it(key, *alone);
  });
}

void Trainers::host_died(int host) {
  for (auto it = processes_.begin(); it != processes_.end();) {
    if (it->first.first == host) {
      if (it->second.running) broken_.insert(launch_of(it->second, it->first.second));
      it = processes_.erase(it);
    } else {
      ++it;
    }
  }
}

void Trainers::kill_one() {
  if (processes_.empty()) return;
  auto it = processes_.begin();
  std::advance(it, static_cast<std::ptrdiff_t>(random_.below(processes_.size())));
  signal(it->first.first, it->first.second, SIGKILL);
}

int64_t Trainers::checkpoint_of(StoreId store, JobId job) const {
  const auto it = checkpoints_.find({store, job});
  return it == checkpoints_.end() ? -1 : it->second;
}

int64_t Trainers::step_of(int host, const worker::RankKey& key) const {
  const auto it = processes_.find({host, key});
  return it == processes_.end() ? -1 : it->second.step;
}

}  // namespace muster::simulation
