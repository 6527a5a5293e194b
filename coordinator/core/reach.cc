// Workers that cannot be reached: killed, vanished with their host, cut off, or so busy that they are late.
//
// Not to be heard says little by itself, because ranks need no coordinator. It is told at once, and nothing is done about it, when a worker is
// silent for longer than it has ever been late lately and its job does not go on without it. Its ranks are lost when that is confirmed: by
// peers that report them lost, by stacks of the others that show them waiting, or by the lease.
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/absl_view.h"
#include "common/limits.h"
#include "coordinator/core/core.h"

namespace muster::coordinator {
namespace {

constexpr int32_t kHeartbeatsMissed = 3;
constexpr int32_t kPauseMargin = 2;

}  // namespace

// Some of the job's ranks that are on this life of the worker have not ended.
bool Core::has_ranks(const Job& job, const Worker& worker) const {
  const Launch& launch = launches_.at(job.id);
  const auto ranks = launch.ranks.find(worker.name);
  return ranks != launch.ranks.end() &&
         std::any_of(ranks->second.begin(), ranks->second.end(), [&](const Rank rank) {
           const auto index = static_cast<size_t>(rank.value());
           return job.placement[index].incarnation == worker.incarnation &&
                  job.ranks[index].life != RankState::Life::kExited;
         });
}

Duration Core::patience_with(const Worker& worker) const {
  const Duration interval = options_.heartbeat_interval / kBusyHeartbeats;
  const Duration usual = std::max({options_.unreachable_after, kHeartbeatsMissed * interval,
                                   kPauseMargin * worker.longest_pause});
  return std::min(usual, options_.worker_lease);
}

// One that this life of the coordinator has never heard is on its way: the lease tells.
bool Core::is_unreachable(const Worker& worker) const {
  const bool known = worker.slots > 0 && reach_from_ <= now_;
  return known && worker.last_heard + patience_with(worker) <= now_;
}

bool Core::may_be_confirmed(const Launch& launch) const {
  return std::all_of(launch.unreachable.begin(), launch.unreachable.end(),
                     [&](const WorkerName& name) {
                       const auto worker = workers_.find(name);
                       return worker == workers_.end() ||
                              worker->second.last_heard + options_.unreachable_confirm <= now_;
                     });
}

// What is told may end the attempt, and its launch with it: first all is seen, and then it is told.
void Core::check_reach(Job& job) {
  if (job.cancel_requested) return;
  if (launches_.at(job.id).victim_deadline) lose_confirmed(job);
  if (!is_running(job.state)) return;
  Launch& launch = launches_.at(job.id);
  if (launch.reach_check && *launch.reach_check > now_ && !launch.victim_deadline) return;
  std::optional<Instant> next;
  const auto look_again_at = [&](Instant t) {
    if (t > now_) next = next ? std::min(*next, t) : t;
  };
  std::vector<WorkerName> gone;
  std::vector<std::pair<WorkerName, std::string_view>> back;
  for (const auto& [name, ranks] : launch.ranks) {
    const auto found = workers_.find(name);
    if (found == workers_.end() || !has_ranks(job, found->second)) continue;
    const Worker& worker = found->second;
    if (launch.victim_deadline && worker.away_since)
      look_again_at(*worker.away_since + options_.broken_stream_wait);
    const bool told = launch.unreachable.contains(name);
    if (!is_unreachable(worker)) {
      if (told) back.emplace_back(name, "is heard of again");
      look_again_at(std::max(worker.last_heard + patience_with(worker), reach_from_));
      continue;
    }
    look_again_at(now_ + options_.unreachable_after / 4);
    // The others complete no step without its ranks: where they do, it is the network between us that is broken.
    const bool runs = launch.hang->goes_on_since(worker.last_heard, now_);
    if (told && runs)
      back.emplace_back(name, "cannot be heard, but its ranks run: steps are completed");
    if (!told && !runs && is_missed(job, worker)) gone.push_back(name);
  }
  launch.reach_check = next;
  for (const auto& [name, how] : back) tell_reachable(job, name, how);
  for (const WorkerName& name : gone) {
    if (is_running(job.state)) tell_unreachable(job, workers_.at(name));
  }
}

// Nothing has moved since it was heard: where the others go on, or there are no others, a node that is only late is no incident yet. Nor is one
// that is silent, while nobody would hear more of the job in any other step.
bool Core::is_missed(const Job& job, const Worker& worker) const {
  constexpr int32_t kAlone = 3;
  const Launch& launch = launches_.at(job.id);
  const Duration patience = patience_with(worker);
  const Instant progress = launch.hang->last_progress();
  // Those that went on without it have to stand still for as long.
  if (progress > worker.last_heard + patience / 2 && progress + patience > now_) return false;
  const Duration news =
      launch.hang->usual_silence() + options_.heartbeat_interval / kBusyHeartbeats;
  if (!worker.away_since && progress + news > now_) return false;
  const bool alone = launch.ranks.size() == 1 && !worker.away_since;
  return !alone || worker.last_heard + kAlone * patience <= now_;
}

void Core::tell_unreachable(Job& job, const Worker& worker) {
  Launch& launch = launches_.at(job.id);
  launch.unreachable.insert(worker.name);
  launch.no_news.erase(worker.name);
  const std::string how = worker.away_since ? absl::StrFormat("its stream broke %.1f s ago",
                                                              to_seconds(now_ - *worker.away_since))
                                            : absl::StrFormat("nothing was heard of it for %.1f s",
                                                              to_seconds(now_ - worker.last_heard));
  Fault what;
  what.worker = worker.name;
  what.unix_ns = unix_ns_;
  what.message =
      absl::StrCat("worker ", worker.name.value(), " (", worker.host, ") cannot be reached: ", how);
  if (launch.incident) {
    incidents_.note(*launch.incident, unix_ns_, what.message);
  } else {
    launch.incident = open_silence(job, what);
  }
  if (job.state == JobState::kRunning) {
    suspect(job, what.message);
  } else {
    climb(job);
  }
}

// One for all silences of an attempt: a busy fleet has many, and each incident more drives an older one out.
IncidentId Core::open_silence(const Job& job, const Fault& what) {
  Launch& launch = launches_.at(job.id);
  Incident fresh = incident_of_fault(job, what, IncidentKind::kWorkerLost,
                                     unix_ns_of(launch.hang->last_progress()));
  if (Incident* known = launch.silence ? incidents_.change(*launch.silence) : nullptr) {
    known->open = true;
    known->sentence = std::move(fresh.sentence);
    known->suspects = std::move(fresh.suspects);
    incidents_.note(*launch.silence, unix_ns_, what.message);
  } else {
    launch.silence = incidents_.open(std::move(fresh));
    incidents_.await(*launch.silence);
  }
  incidents_.change(*launch.silence)->action = "none yet: its ranks may run on";
  return *launch.silence;
}

void Core::tell_reachable(Job& job, const WorkerName& name, std::string_view how) {
  Launch& launch = launches_.at(job.id);
  launch.unreachable.erase(name);
  const std::string text = absl::StrCat("worker ", name.value(), " ", av(how));
  if (launch.incident) {
    incidents_.note(*launch.incident, unix_ns_, text);
    if (launch.unreachable.empty()) {
      if (Incident* incident = incidents_.change(*launch.incident))
        incident->action = "none: its ranks ran on";
      incidents_.close(*launch.incident);
      launch.incident.reset();
    }
  }
  const bool waits = launch.next_look.has_value();
  if (launch.unreachable.empty() && job.state == JobState::kSuspect && !waits) go_on(job, text);
}

// Peers say that they have lost somebody, and a worker is away: its ranks are the ones.
void Core::lose_confirmed(Job& job) {
  std::vector<WorkerName> names;
  for (const auto& [name, ranks] : launches_.at(job.id).ranks) names.push_back(name);
  for (const WorkerName& name : names) {
    if (!is_running(job.state)) return;
    const auto found = workers_.find(name);
    if (found == workers_.end() || !has_ranks(job, found->second)) continue;
    const Worker& worker = found->second;
    const bool stayed_away = worker.slots > 0 && worker.away_since &&
                             *worker.away_since + options_.broken_stream_wait <= now_;
    if (stayed_away || is_unreachable(worker))
      give_up_ranks_of(job, name, "cannot be reached, and peers of its ranks have lost them");
  }
}

// They may run on. A stream that is whole, and comes back to life without another registration, brings them the order to stop.
void Core::give_up_ranks_of(Job& job, const WorkerName& name, std::string_view why) {
  const auto worker = workers_.find(name);
  if (worker != workers_.end() && worker->second.connected) {
    std::set<RankKey> strays;
    for (const Rank rank : awaited_ranks(job, worker->second))
      strays.insert({job.id, job.attempt, rank});
    stop_launches(worker->second, strays);
    worker->second.strays.merge(strays);
  }
  lose_ranks_of(job, name, std::nullopt, why);
}

}  // namespace muster::coordinator
