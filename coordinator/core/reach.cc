// Workers that cannot be reached: killed, vanished with their host, cut off, or so busy that they are late.
//
// Not to be heard says little by itself, because ranks need no coordinator. So it has three steps, and only the last one stops anything:
//
//   unreachable_after    its job stands still, too: the job is SUSPECT, and who looks at it is told which worker
//   unreachable_confirm  it is an incident; before, most silences are over. A worker that is often late is given twice its longest pause
//   then                 its ranks are lost, when a second witness says so: peers that report them lost, stacks of the others that show them
//                        waiting, or the lease. Where no other node is free for them, the stacks have to show it for longer. Of an attempt that
//                        ends anyway, the others' ends are that witness
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
// What two samples take beside the time between them.
constexpr Duration kReading = std::chrono::milliseconds(150);

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

// Heartbeats of workers with ranks follow each other so fast.
Duration Core::news_within() const { return options_.heartbeat_interval / kBusyHeartbeats; }

Duration Core::told_after() const {
  return std::min(std::max(options_.unreachable_after, kHeartbeatsMissed * news_within()),
                  options_.worker_lease);
}

// Who is often late under load is silent for longer before that means more than load.
Duration Core::patience_with(const Worker& worker) const {
  return std::min(std::max(told_after(), kPauseMargin * worker.longest_pause),
                  options_.worker_lease);
}

// One that this life of the coordinator has never heard is on its way: the lease tells.
bool Core::is_silent_for(const Worker& worker, Duration time) const {
  const bool known = worker.slots > 0 && reach_from_ <= now_;
  return known && worker.last_heard + time <= now_;
}

bool Core::is_unreachable(const Worker& worker) const {
  return is_silent_for(worker, told_after());
}

// Another node for each of the `missing` ones.
bool Core::has_place_elsewhere(const Job& job, size_t missing) const {
  if (job.spec.restarts_max == 0) return false;
  const Launch& launch = launches_.at(job.id);
  NodeUses uses = use_by_worker();
  for (const WorkerName& own : job.held) uses[own] -= use_of(job.spec, own);
  const Wish wish = wish_of(job);
  const auto free = std::count_if(workers_.begin(), workers_.end(), [&](const auto& entry) {
    const auto& [name, worker] = entry;
    const bool there = takes_ranks(worker) &&
                       worker.last_heard + kHeartbeatsMissed * options_.heartbeat_interval > now_;
    return there && nodes_.is_sound(name) && !launch.ranks.contains(name) &&
           wish.has_room(host_of(worker, uses[name]));
  });
  return free >= static_cast<std::ptrdiff_t>(missing);
}

// Silence after which stacks may confirm that a worker's ranks are lost. Who waits longer than that for a node that may come back pays for all the
// others; who cannot go on without it pays nothing.
Duration Core::lost_after(const Job& job, size_t missing) const {
  return has_place_elsewhere(job, missing) ? options_.unreachable_confirm
                                           : options_.unreachable_wait;
}

// `before`: so much sooner.
bool Core::may_be_confirmed(const Job& job, Duration before) const {
  const Launch& launch = launches_.at(job.id);
  if (launch.unreachable.empty()) return true;
  const Duration time = lost_after(job, launch.unreachable.size());
  return std::all_of(
      launch.unreachable.begin(), launch.unreachable.end(), [&](const WorkerName& name) {
        const auto worker = workers_.find(name);
        return worker == workers_.end() ||
               worker->second.last_heard + std::max(time, patience_with(worker->second)) - before <=
                   now_;
      });
}

// Stacks are read while the silence lasts, so that the verdict need not wait for them as well.
Duration Core::stacks_take() const { return options_.samples_apart + kReading; }

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
  const size_t missing = launch.unreachable.size();
  const Duration lost = missing == 0 ? Duration::zero() : lost_after(job, missing);
  std::vector<WorkerName> gone;
  std::vector<WorkerName> stay_gone;
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
      look_again_at(std::max(worker.last_heard + told_after(), reach_from_));
      continue;
    }
    look_again_at(now_ + options_.unreachable_after / 4);
    // The others complete no step without its ranks: where they do, it is the network between us that is broken.
    const bool runs = launch.hang->goes_on_since(worker.last_heard, news_within(), now_);
    if (told && runs) {
      back.emplace_back(name, "cannot be heard, but its ranks run: steps are completed");
    } else if (told) {
      const Duration patience = patience_with(worker);
      const Duration incident = std::max(options_.unreachable_confirm, patience);
      if (is_silent_for(worker, incident)) stay_gone.push_back(name);
      for (const Duration time :
           {incident, std::max(lost, patience) - stacks_take(), std::max(lost, patience)})
        look_again_at(worker.last_heard + time);
    }
    if (!told && !runs && is_missed(job, worker)) gone.push_back(name);
  }
  launch.reach_check = next;
  for (const auto& [name, how] : back) tell_reachable(job, name, how);
  for (const WorkerName& name : stay_gone) record_silence(job, workers_.at(name));
  for (const WorkerName& name : gone) {
    if (is_running(job.state)) tell_unreachable(job, workers_.at(name));
  }
}

// Nothing has moved since it was heard: where the others go on, or there are no others, a node that is only late is not missed yet. Nor is one
// that is silent, while nobody would hear more of the job in any other step.
bool Core::is_missed(const Job& job, const Worker& worker) const {
  constexpr int32_t kAlone = 3;
  const Launch& launch = launches_.at(job.id);
  const Duration patience = told_after();
  const Instant progress = launch.hang->last_progress();
  // Those that went on without it have to stand still for a while, too.
  if (progress > worker.last_heard + patience / 2 && progress + patience / 2 > now_) return false;
  const Duration news = launch.hang->usual_silence() + news_within();
  if (!worker.away_since && progress + news > now_) return false;
  const bool alone = launch.ranks.size() == 1 && !worker.away_since;
  return !alone || worker.last_heard + kAlone * patience <= now_;
}

std::string Core::silence_text(const Worker& worker) const {
  const std::string how = worker.away_since ? absl::StrFormat("its stream broke %.1f s ago",
                                                              to_seconds(now_ - *worker.away_since))
                                            : absl::StrFormat("nothing was heard of it for %.1f s",
                                                              to_seconds(now_ - worker.last_heard));
  return absl::StrCat("worker ", worker.name.value(), " (", worker.host,
                      ") cannot be reached: ", how);
}

// Whoever looks at the job sees it. Most silences are over before they are an incident.
void Core::tell_unreachable(Job& job, const Worker& worker) {
  constexpr size_t kToldMax = kIncidentMomentsMax / 2;  // the incident has other moments, too
  Launch& launch = launches_.at(job.id);
  launch.unreachable.insert(worker.name);
  launch.no_news.erase(worker.name);
  const std::string text = silence_text(worker);
  if (launch.incident) {
    incidents_.note(*launch.incident, unix_ns_, text);
  } else if (launch.told_silences.size() < kToldMax) {
    launch.told_silences.push_back({unix_ns_, text});
  }
  if (job.state == JobState::kRunning) {
    suspect(job, text);
  } else {
    climb(job);
  }
}

// With the moments at which it was told first. One incident for all silences of an attempt: a busy fleet has many, and each incident more drives
// an older one out.
void Core::record_silence(const Job& job, const Worker& worker) {
  Launch& launch = launches_.at(job.id);
  if (launch.incident) return;
  Fault what;
  what.worker = worker.name;
  what.unix_ns = unix_ns_;
  what.message = silence_text(worker);
  Incident fresh = incident_of_fault(job, what, IncidentKind::kWorkerLost,
                                     unix_ns_of(launch.hang->last_progress()));
  if (Incident* known = launch.silence ? incidents_.change(*launch.silence) : nullptr) {
    known->open = true;
    known->sentence = std::move(fresh.sentence);
    known->suspects = std::move(fresh.suspects);
  } else {
    fresh.moments.pop_back();
    launch.silence = incidents_.open(std::move(fresh));
    incidents_.await(*launch.silence);
  }
  launch.incident = launch.silence;
  for (IncidentMoment& told : std::exchange(launch.told_silences, {}))
    incidents_.note(*launch.silence, told.unix_ns, std::move(told.text));
  incidents_.note(*launch.silence, unix_ns_, what.message);
  incidents_.change(*launch.silence)->action = "none yet: its ranks may run on";
}

void Core::tell_reachable(Job& job, const WorkerName& name, std::string_view how) {
  Launch& launch = launches_.at(job.id);
  launch.unreachable.erase(name);
  if (launch.unreachable.empty()) launch.told_silences.clear();
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
    if (stayed_away || is_silent_for(worker, patience_with(worker)))
      give_up_ranks_of(job, name, "cannot be reached, and peers of its ranks have lost them");
  }
}

// Ranks on another worker than `other` are out of reach.
bool Core::misses_a_worker(const Job& job, const WorkerName& other) const {
  return std::ranges::any_of(launches_.at(job.id).ranks, [&](const auto& entry) {
    const auto worker = workers_.find(entry.first);
    return worker != workers_.end() && entry.first != other && has_ranks(job, worker->second) &&
           (worker->second.away_since || is_unreachable(worker->second));
  });
}

// An attempt that ends waits for ranks of nobody but workers that cannot be reached: without the others, which are gone, these make no step and
// save nothing. Where nothing is heard of all the others either, only the lease tells.
void Core::check_ends() {
  std::vector<JobId> ending;
  for (const auto& [id, launch] : launches_) {
    if (jobs_.at(id).state == JobState::kRestarting) ending.push_back(id);
  }
  for (const JobId id : ending) check_end(jobs_.at(id));
}

void Core::check_end(Job& job) {
  Launch& launch = launches_.at(job.id);
  launch.reach_check.reset();
  if (job.cancel_requested) return;
  std::vector<WorkerName> away;
  // Who has been given time to save may use it alone, too.
  Instant until = launch.killed_at.value_or(Instant{});
  for (const auto& [name, ranks] : launch.ranks) {
    const auto worker = workers_.find(name);
    if (worker == workers_.end() || !has_ranks(job, worker->second)) continue;
    if (!worker->second.away_since && !is_unreachable(worker->second)) return;  // it ends first
    away.push_back(name);
  }
  if (away.empty() || away.size() == launch.ranks.size()) return;
  const Duration lost = lost_after(job, away.size());
  for (const WorkerName& name : away) {
    const Worker& worker = workers_.at(name);
    if (worker.slots == 0) return;
    until =
        std::max({until, reach_from_, worker.last_heard + std::max(lost, patience_with(worker))});
  }
  if (until > now_) {
    launch.reach_check = until;
    return;
  }
  for (const WorkerName& name : away) {
    if (job.state == JobState::kRestarting)
      give_up_ranks_of(job, name, "cannot be reached, and the others' ranks have ended");
  }
}

// They may run on. A stream that is whole, and comes back to life without another registration, brings them the order to stop.
void Core::give_up_ranks_of(Job& job, const WorkerName& name, std::string_view why) {
  const auto worker = workers_.find(name);
  if (worker != workers_.end() && launches_.at(job.id).unreachable.contains(name))
    record_silence(job, worker->second);
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
