// The reports about simulated trainers: their pages, the evidence in dumps, and their connections.
#include <algorithm>
#include <string>
#include <utility>

#include "tests/simulation/trainers.h"

namespace muster::simulation {
namespace {

// The first intervals between repetitions of a segment and of an attempt to connect, which double,
// and the numbers of repetitions from which on kernels report them.
constexpr Duration kSegmentInterval = std::chrono::milliseconds(200);
constexpr int32_t kSegmentRepetitions = 3;
constexpr Duration kConnectInterval = std::chrono::seconds(1);
constexpr int32_t kConnectRepetitions = 2;

// Returns the number of repetitions within `time`, and the time of the next one.
std::pair<int32_t, Duration> repetitions(Duration time, Duration interval) {
  int32_t count = 0;
  Duration next = interval;
  for (; next <= time; next += interval) {
    ++count;
    interval *= 2;
  }
  return {count, next};
}

}  // namespace

std::optional<std::pair<int, int>> Trainers::find_cut(const LaunchKey& launch) {
  if (!network_.has_cut_links()) return std::nullopt;
  std::set<int> hosts;
  for (const auto& [key, process] : processes_)
    if (process.running && launch_of(process, key.second) == launch) hosts.insert(key.first);
  for (const int a : hosts)
    for (const int b : hosts)
      if (a < b && network_.is_link_cut(a, b)) {
        cut_launches_ += hung_launches_.insert(launch).second ? 1 : 0;
        return std::pair(a, b);
      }
  return std::nullopt;
}

void Trainers::repeat_segment(const LaunchKey& launch) {
  const Instant since = stalls_.at(launch).since;
  const Duration next = repetitions(scheduler_.now() - since, kSegmentInterval).second;
  scheduler_.after(since + next - scheduler_.now(), [this, launch] {
    const auto [a, b] = stalls_.at(launch).hosts;
    if (network_.is_link_cut(a, b)) return repeat_segment(launch);
    stalls_.erase(launch);
    complete_step(launch);
  });
}

std::vector<StalledLink> Trainers::stalled_links(int host, const worker::RankKey& key,
                                                 const Process& process) const {
  std::map<int, StalledLink> links;
  const bool is_connecting = process.step < 0;
  if (const auto stall = stalls_.find(launch_of(process, key)); stall != stalls_.end()) {
    const auto [a, b] = stall->second.hosts;
    const int32_t count =
        repetitions(scheduler_.now() - stall->second.since, kSegmentInterval).first;
    if ((host != a && host != b) || count < kSegmentRepetitions) return {};
    return {{"node" + std::to_string(host == a ? b : a), 1, false, count}};
  }
  if (!network_.has_cut_links() || !is_connecting) return {};
  for (const auto& [other, peer] : processes_) {
    if (!peer.running || launch_of(peer, other.second) != launch_of(process, key)) continue;
    const auto time = network_.time_of_cut(host, other.first);
    const int32_t count = time ? repetitions(*time, kConnectInterval).first : 0;
    if (count < kConnectRepetitions) continue;
    links[other.first] = {"node" + std::to_string(other.first), 1, true, count};
  }
  std::vector<StalledLink> found;
  for (const auto& [peer, link] : links)
    if (found.size() < kStalledLinksMax) found.push_back(link);
  return found;
}

worker::RankFigures Trainers::figures(int host, const worker::RankKey& key) const {
  worker::RankFigures figures;
  const Process* p = process(host, key);
  if (p == nullptr) return figures;
  figures.phase = p->phase;
  figures.phase_start = p->phase_start;
  figures.last_progress = p->last_progress;
  figures.step = p->step;
  figures.step_seconds = p->step_seconds;
  figures.step_times = p->times;
  figures.collective_wait_seconds = p->waited;
  figures.stalled_links = stalled_links(host, key, *p);
  const bool sleeps = p->waits || p->hung == Hang::kSleeps;
  figures.process_state = p->stuck ? 'D' : p->hung == Hang::kStopped ? 'T' : sleeps ? 'S' : 'R';
  return figures;
}

RankEvidence Trainers::evidence(int host, const worker::RankKey& key) const {
  RankEvidence evidence;
  evidence.rank = key.rank.value();
  const Process* p = process(host, key);
  if (p == nullptr) {
    evidence.page_problem = evidence.stack_problem = "dead";
    return evidence;
  }
  evidence.pid = p->pid;
  evidence.phase = p->phase;
  evidence.phase_age = scheduler_.now() - p->phase_start;
  evidence.step = p->step;
  evidence.progress_age = scheduler_.now() - p->last_progress;
  evidence.step_seconds = p->step_seconds;
  evidence.process_state = figures(host, key).process_state;
  GroupEvidence& group = evidence.groups.emplace_back();
  group.name = "data";
  group.members = static_cast<uint32_t>(p->world_size);
  group.completed = static_cast<uint64_t>(std::max<int64_t>(p->step, 0));
  group.enqueued = group.started = group.completed + (p->waits ? 1 : 0);
  const bool other = p->hung == Hang::kSkips;
  group.kind = other ? CollectiveKind::kBroadcast : CollectiveKind::kAllReduce;
  group.bytes = other ? 8 : 4096;
  group.collective = other ? "loss" : "grads";
  return evidence;
}

ThreadStack Trainers::stack(int host, const worker::RankKey& key) const {
  ThreadStack stack;
  stack.name = "main";
  const Process* p = process(host, key);
  std::vector<std::string> calls = {"main", "train"};
  const int64_t tick = scheduler_.now().time_since_epoch() / std::chrono::milliseconds(100);
  if (p == nullptr) {
    return stack;
  } else if (p->hung == Hang::kSkips) {
    calls.insert(calls.end(), {"log", "broadcast", "poll"});
  } else if (p->waits) {
    calls.insert(calls.end(), {"step", "all_reduce", "poll"});
  } else if (p->hung == Hang::kLoops) {
    calls.insert(calls.end(), {"load", "loop", "leaf " + std::to_string(tick % 7)});
  } else if (p->hung != Hang::kNone) {
    calls.insert(calls.end(), {"load", "lock", "futex"});
  } else {
    calls.insert(calls.end(), {"forward", "layer " + std::to_string(tick % 5), "gemm"});
  }
  for (std::string& call : calls) stack.frames.push_back({kNoModule, 0, std::move(call)});
  return stack;
}

}  // namespace muster::simulation
