// Processes that SIGKILL does not end: one that waits in the kernel (D state: a file system that is frozen or gone, a driver that does not
// answer) ends when the kernel lets go of it, which may be never. Its job does not wait for that:
//
//   told to stop ──grace──▶ SIGKILL ──reaped_within──▶ lost there: the attempt ends without it, the job goes on elsewhere
//                                     (torn_down_within while it runs: to give back much memory takes time)
//
// The worker has the process until it ends, and says so when it does. Until then it holds its slots, and nothing is placed on the node: a
// device that such a process has open is of no use to another. After a restart of the coordinator the registration lists it again.
#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "coordinator/core/core.h"

namespace muster::coordinator {
namespace {

constexpr int32_t kLooks = 2;  // in the time of a heartbeat: less would miss a short silence

std::string rank_name(const RankKey& key) {
  return absl::StrCat("rank ", key.rank.value(), " of job ", key.job.value());
}

bool is_torn_down(const RankState& rank) {
  return rank.process_state == 'R' || rank.process_state == 'S';
}

}  // namespace

// Of a worker that has been heard since: the lease tells of others.
std::vector<RankKey> Core::unkillable_ranks(const Job& job, const Worker& worker) const {
  std::vector<RankKey> keys;
  const Launch& launch = launches_.at(job.id);
  if (!launch.killed_at || !worker.connected || !has_ranks(job, worker)) return keys;
  for (const Rank rank : awaited_ranks(job, worker)) {
    const RankKey key{job.id, job.attempt, rank};
    const bool runs = is_torn_down(job.ranks[static_cast<size_t>(rank.value())]);
    const Duration time = runs ? options_.torn_down_within : options_.reaped_within;
    if (*launch.killed_at + time <= worker.last_heard && !worker.missing.contains(key))
      keys.push_back(key);
  }
  return keys;
}

// Less than two heartbeats are a hiccup.
bool Core::is_silent(const Worker& worker) const {
  return worker.last_heard + 2 * options_.heartbeat_interval <= now_;
}

void Core::expect_ends(Launch& launch, Duration grace) {
  launch.killed_at = now_ + grace;
  launch.stuck_look = *launch.killed_at + options_.heartbeat_interval / kLooks;
}

// Who is silent may have the order to stop only when it is heard again.
bool Core::is_order_on_its_way(const Job& job) const {
  return std::ranges::any_of(workers_, [&](const auto& entry) {
    const Worker& worker = entry.second;
    return worker.connected && is_silent(worker) && has_ranks(job, worker);
  });
}

void Core::leave_stuck(Worker& worker, const std::vector<RankKey>& keys) {
  worker.strays.insert(keys.begin(), keys.end());
  worker.stuck.insert(keys.begin(), keys.end());
  const size_t more = keys.size() - 1;
  const std::string text = absl::StrCat(
      rank_name(keys.front()), more > 0 ? absl::StrCat(" and ", more, " more") : std::string(),
      " cannot be killed: ", to_seconds(options_.reaped_within),
      " s after SIGKILL the process is there");
  for (const RankKey& key : keys) {
    Job* job = live_job(key.job, key.attempt);
    if (job == nullptr) continue;
    rank_gone(*job, key.rank);
    if (const auto& incident = launches_.at(key.job).incident; incident && key == keys.front())
      incidents_.note(*incident, unix_ns_, absl::StrCat(worker.name.value(), ": ", text));
  }
  suspect_node(worker.name, Suspicion::kStuck, text);
  schedule_needed_ = true;
}

void Core::check_stuck() {
  std::vector<JobId> stopped;
  for (auto& [id, launch] : launches_) {
    if (!launch.killed_at || launch.stuck_look > now_) continue;
    launch.stuck_look = now_ + options_.heartbeat_interval / kLooks;
    if (is_order_on_its_way(jobs_.at(id))) launch.killed_at = std::max(*launch.killed_at, now_);
    if (*launch.killed_at + options_.reaped_within <= now_) stopped.push_back(id);
  }
  for (const JobId id : stopped) {
    Job& job = jobs_.at(id);
    bool left = false;
    for (auto& [name, worker] : workers_) {
      const std::vector<RankKey> keys = unkillable_ranks(job, worker);
      if (keys.empty()) continue;
      leave_stuck(worker, keys);
      left = true;
    }
    if (left) settle(job);
  }
  for (auto& [name, worker] : workers_) {
    if (!worker.strays_since || *worker.strays_since + options_.torn_down_within > now_) continue;
    if (is_silent(worker)) {
      worker.strays_since = now_;
      continue;
    }
    worker.strays_since.reset();
    std::vector<RankKey> keys;
    std::ranges::set_difference(worker.strays, worker.stuck, std::back_inserter(keys));
    if (!keys.empty()) leave_stuck(worker, keys);
  }
}

// "node2 (stuck process: rank 1 of job 3 cannot be killed)"
std::string Core::stuck_text(const Worker& worker) const {
  return absl::StrCat(worker.name.value(), " (stuck process: ", rank_name(*worker.stuck.begin()),
                      " cannot be killed)");
}

// How many of the attempt's ranks it goes without.
int64_t Core::stuck_ranks_of(const Job& job) const {
  int64_t ranks = 0;
  for (const auto& [name, worker] : workers_)
    ranks += std::ranges::count_if(worker.stuck, [&](const RankKey& key) {
      return key.job == job.id && key.attempt == job.attempt;
    });
  return ranks;
}

}  // namespace muster::coordinator
