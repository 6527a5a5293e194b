#include "tests/simulation/trainers.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <utility>

#include "common/process/exit_code.h"

namespace muster::simulation {
namespace {

constexpr int64_t kCheckpointEvery = 5;
// The time for which a rank that has received SIGTERM waits for its peers.
constexpr Duration kPeersWait = std::chrono::seconds(3);

}  // namespace

int32_t Trainers::spawn(int host, StoreId store, const worker::RankKey& key, int32_t world_size,
                        const std::string& config,
                        std::function<void(const ProcessEnd&)> on_reaped) {
  const int32_t pid = next_pid_++;
  Process& process = processes_[{host, key}];
  process = Process{};
  process.pid = pid;
  process.host = host;
  process.store = store;
  process.world_size = world_size;
  process.running = true;
  if (key.rank == Rank(0) && config.ends_with(kFailsLater)) process.fails_after = 2;
  if (key.rank == Rank(0) && config.ends_with(kFailsAtStart)) process.fails_after = 0;
  enter(process, Phase::kLoad);
  process.ignores_sigterm = random_.chance(0.1);
  process.on_reaped = std::move(on_reaped);
  came_up_[launch_of(process, key)].insert(key.rank);
  for (const auto& [other, old] : processes_) {
    if (old.stuck && old.store == store && other.second.job == key.job &&
        other.second.attempt < key.attempt)
      left_stuck_.insert(launch_of(process, key));
  }
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

bool Trainers::votes(const LaunchKey& launch) const {
  return std::ranges::all_of(processes_, [&](const auto& entry) {
    const auto& [key, process] = entry;
    return launch_of(process, key.second) != launch ||
           (process.running && !process.ignores_sigterm && process.step >= 0 &&
            process.world_size > 1);
  });
}

void Trainers::enter(Process& process, Phase phase) {
  process.phase = phase;
  process.phase_start = process.last_progress = scheduler_.now();
}

void Trainers::tick(ProcessKey key, int32_t pid) {
  Process* process = find(key, pid);
  if (process == nullptr || process->hung != Hang::kNone) return;
  const LaunchKey launch = launch_of(*process, key.second);
  const JobNature& nature = natures_[launch.first];
  const auto leave = [&](ExitCode code) {
    end(key, *process, {to_int(code), 0, process->step}, random_.between_ms(1, 50));
  };
  if (broken_.contains(launch)) {
    // One in ten hangs in its collective instead, until it is killed.
    process->waits = true;
    if (!random_.chance(0.1)) leave(ExitCode::kPeerLost);
    return;
  }
  if (process->fails_after == 0) return leave(ExitCode::kFailure);
  if (nature.bad_input_rank == key.second.rank.value()) return leave(ExitCode::kBadInput);
  if (process->leaving && !votes(launch)) return;  // does not progress
  if (process->waits) return;
  if (!all_up(launch, process->world_size) || (process->step < 0 && find_cut(launch))) {
    scheduler_.after(nature.step_time, [this, key, pid] { tick(key, pid); });
    return;
  }
  if (process->step < 0) {
    process->step = restored_.try_emplace(launch, checkpoints_[launch.first]).first->second;
    compute(key, *process, Duration::zero());
    return;
  }
  if (process->phase != Phase::kStep) {
    enter(*process, Phase::kStep);
    compute(key, *process, Duration::zero());
    return;
  }
  process->waits = true;
  process->entered = scheduler_.now();
  if (process->step == nature.hang_step && key.second.rank == Rank(nature.hang_rank) &&
      hung_.insert(launch.first).second) {
    return hang(key, *process);
  }
  complete_step(launch);
}

void Trainers::compute(const ProcessKey& key, Process& process, Duration more) {
  const JobNature& nature = natures_[{process.store, key.second.job}];
  if (process.phase != Phase::kStep) enter(process, Phase::kStep);
  process.step_began = scheduler_.now();
  double factor = std::pow(nature.growth, static_cast<double>(process.times.total()));
  if (key.second.rank == Rank(nature.slow_rank)) factor *= nature.slow_factor;
  factor *= 1 + 0.02 * static_cast<double>(random_.below(10));
  const auto time = std::chrono::duration_cast<Duration>(nature.step_time * factor);
  scheduler_.after(more + time, [this, key, pid = process.pid] { tick(key, pid); });
}

// Completes the step if all ranks have entered its collective.
void Trainers::complete_step(const LaunchKey& launch) {
  std::vector<ProcessKey> ranks;
  for (const auto& [key, process] : processes_) {
    if (!process.running || launch_of(process, key.second) != launch) continue;
    if (!process.waits || process.hung != Hang::kNone) return;
    ranks.push_back(key);
  }
  if (ranks.empty() || std::ssize(ranks) < processes_.at(ranks.front()).world_size) return;
  if (stalls_.contains(launch)) return;
  if (const auto hosts = find_cut(launch)) {
    stalls_[launch] = {scheduler_.now(), *hosts};
    return repeat_segment(launch);
  }
  const bool agreed = votes(launch) && std::ranges::any_of(ranks, [this](const ProcessKey& key) {
                        return processes_.at(key).leaving;
                      });
  std::erase_if(ranks, [this](const ProcessKey& key) {
    Process& process = processes_.at(key);
    return !process.running || !finish_step(key, process);
  });
  if (agreed && !broken_.contains(launch)) {
    left_together_ += ranks.empty() ? 0 : 1;  // the set is empty if this was the last step
    for (const ProcessKey& key : ranks) {
      Process& process = processes_.at(key);
      checkpoints_[launch.first] = process.step;
      end_preempted(key, process);
    }
    return;
  }
  for (const ProcessKey& key : ranks) {
    Process& process = processes_.at(key);
    if (broken_.contains(launch)) {
      scheduler_.after(random_.between_ms(1, 100),
                       [this, key, pid = process.pid] { tick(key, pid); });
      continue;
    }
    const Duration pause = pause_after(key, process);
    if (pause > Duration::zero()) {
      scheduler_.after(pause, [this, key, pid = process.pid] { tick(key, pid); });
    } else {
      compute(key, process, Duration::zero());
    }
  }
}

bool Trainers::finish_step(const ProcessKey& key, Process& process) {
  const LaunchKey launch = launch_of(process, key.second);
  const JobNature& nature = natures_[launch.first];
  const Instant now = scheduler_.now();
  const auto leave = [&](ExitCode code) {
    end(key, process, {to_int(code), 0, process.step}, random_.between_ms(1, 50));
    return false;
  };
  ++process.step;
  process.waits = false;
  process.last_progress = now;
  process.step_seconds = to_seconds(now - process.step_began);
  process.times.add(process.step_seconds);
  process.waited += to_seconds(now - process.entered);
  const bool requested = std::exchange(process.checkpoint_requested, false);
  saved_on_request_ += requested ? 1 : 0;
  if (requested || process.step % kCheckpointEvery == 0) checkpoints_[launch.first] = process.step;
  if (process.fails_after > 0 &&
      process.times.total() >= static_cast<uint64_t>(process.fails_after))
    return leave(ExitCode::kFailure);
  if (process.step == nature.nan_step && key.second.rank == Rank(0))
    return leave(ExitCode::kNotFinite);
  if (process.step >= nature.steps) return leave(ExitCode::kOk);
  if (crashing_ && random_.chance(nature.crash_per_step)) {
    if (random_.chance(0.5)) return leave(ExitCode::kFailure);
    end(key, process, {-1, SIGSEGV, process.step}, random_.between_ms(1, 50));
    return false;
  }
  return true;
}

// All ranks evaluate; a long checkpoint occupies one rank, and the others wait for it in their next
// step.
Duration Trainers::pause_after(const ProcessKey& key, Process& process) {
  const JobNature& nature = natures_[{process.store, key.second.job}];
  if (nature.pause_every == 0 || process.step % nature.pause_every != 0) return Duration::zero();
  const bool evaluates = process.step / nature.pause_every % 2 == 0;
  if (!evaluates && key.second.rank != Rank(0)) return Duration::zero();
  enter(process, evaluates ? Phase::kEval : Phase::kCheckpointSave);
  return nature.pause;
}

void Trainers::hang(const ProcessKey& key, Process& process) {
  const JobNature& nature = natures_[{process.store, key.second.job}];
  process.hung = nature.hang;
  hung_launches_.insert(launch_of(process, key.second));
  process.waits = nature.hang == Hang::kSkips;
  double longest = 0;
  for (const auto& [other, peer] : processes_) {
    if (launch_of(peer, other.second) == launch_of(process, key.second))
      longest = std::max(longest, peer.step_seconds);
  }
  hangs_.push_back(
      {process.store, key.second.job, key.second.attempt, key.second.rank, scheduler_.now(),
       std::chrono::duration_cast<Duration>(std::chrono::duration<double>(longest)),
       process.times.total(), nature.pause_every > 0 ? nature.pause : Duration::zero()});
}

// Makes the ranks that wait for a lost rank detect the loss within a short time.
void Trainers::break_launch(const LaunchKey& launch) {
  if (!broken_.insert(launch).second) return;
  for (const auto& [key, process] : processes_) {
    if (!process.running || !process.waits || launch_of(process, key.second) != launch) continue;
    scheduler_.after(random_.between_ms(1, 100),
                     [this, key = key, pid = process.pid] { tick(key, pid); });
  }
}

const Process* Trainers::process(int host, const worker::RankKey& key) const {
  const auto it = processes_.find({host, key});
  return it == processes_.end() ? nullptr : &it->second;
}

void Trainers::end(const ProcessKey& key, Process& process, ProcessEnd end, Duration reap_delay) {
  process.running = false;
  const LaunchKey launch = launch_of(process, key.second);
  if (end.signal == 0 && end.exit_code == 0) {
    succeeded_[launch].insert(key.second.rank);
  } else {
    break_launch(launch);
  }
  scheduler_.after(reap_delay, [this, key, pid = process.pid, end] {
    const auto it = processes_.find(key);
    if (it == processes_.end() || it->second.pid != pid) return;
    const auto on_reaped = std::move(it->second.on_reaped);
    processes_.erase(it);
    on_reaped(end);
  });
}

void Trainers::end_preempted(const ProcessKey& key, Process& process) {
  end(key, process, {to_int(ExitCode::kPreempted), 0, process.step}, random_.between_ms(1, 800));
}

void Trainers::signal(int host, const worker::RankKey& key, int signo) {
  const auto it = processes_.find({host, key});
  if (it == processes_.end() || !it->second.running) return;
  Process& process = it->second;
  if (signo == SIGKILL) {
    process.stuck = crashing_ && random_.chance(0.03);
    stuck_ += process.stuck ? 1 : 0;
    end({host, key}, process, {-1, SIGKILL, process.step},
        process.stuck ? random_.between_ms(2'000, 60'000) : random_.between_ms(1, 30));
  } else if (signo == SIGUSR2) {
    process.checkpoint_requested = true;
  } else if (!process.ignores_sigterm && !process.leaving && process.hung == Hang::kNone) {
    leave({host, key}, process);
  }
}

void Trainers::leave(const ProcessKey& key, Process& process) {
  process.leaving = true;
  const LaunchKey launch = launch_of(process, key.second);
  hung_launches_.insert(launch);  // its peers wait for it
  std::map<ProcessKey, Process*> requested;
  for (auto& [other, peer] : processes_) {
    if (peer.running && peer.leaving && launch_of(peer, other.second) == launch)
      requested[other] = &peer;
  }
  if (std::ssize(requested) == process.world_size) {
    const bool began = all_up(launch, process.world_size) && process.step >= 0;
    if (began) checkpoints_[launch.first] = process.step;
    left_together_ += process.world_size > 1 ? 1 : 0;
    for (auto& [at, which] : requested) end_preempted(at, *which);
    return;
  }
  scheduler_.after(kPeersWait, [this, key, pid = process.pid] {
    if (Process* alone = find(key, pid); alone != nullptr) end_preempted(key, *alone);
  });
}

void Trainers::host_died(int host) {
  for (auto it = processes_.begin(); it != processes_.end();) {
    if (it->first.first == host) {
      const LaunchKey launch = launch_of(it->second, it->first.second);
      const bool ran = it->second.running;
      it = processes_.erase(it);
      if (ran) break_launch(launch);
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
