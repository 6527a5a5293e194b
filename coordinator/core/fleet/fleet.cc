#include "coordinator/core/fleet/fleet.h"

#include <algorithm>
#include <iterator>

#include <absl/strings/str_cat.h>

#include "common/job/limits.h"

namespace muster::coordinator {
namespace {

constexpr int32_t kHeartbeatsMissed = 3;
constexpr int32_t kPauseMargin = 2;

// Returns whether the registration is from the machine of `worker`. Pods that replace each other on
// different nodes may have the same host name, but not the same address.
bool is_on_the_same_machine(const Worker& worker, const WorkerRegistered& event) {
  const auto host_of = [](std::string_view address) {
    return address.substr(0, address.rfind(':'));
  };
  return worker.host == event.host &&
         host_of(worker.rendezvous_address) == host_of(event.rendezvous_address);
}

}  // namespace

Worker* Fleet::find(const WorkerName& name) {
  const auto it = workers_.find(name);
  return it == workers_.end() ? nullptr : &it->second;
}

const Worker* Fleet::find(const WorkerName& name) const {
  const auto it = workers_.find(name);
  return it == workers_.end() ? nullptr : &it->second;
}

Worker* Fleet::current(const WorkerName& name, Incarnation incarnation) {
  Worker* worker = find(name);
  const bool current = worker != nullptr && worker->incarnation == incarnation && worker->connected;
  return current ? worker : nullptr;
}

Worker* Fleet::receive(const WorkerName& name, Incarnation incarnation, Instant now) {
  Worker* worker = current(name, incarnation);
  if (worker == nullptr) return nullptr;
  worker->last_message = now;
  worker->postponements = 0;
  worker->renewals = 0;
  return worker;
}

absl::Status Fleet::check_registration(const WorkerRegistered& event, bool has_own_ranks,
                                       Instant now) const {
  if (event.version != options_.version && !has_own_ranks) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", event.worker.value(), " is version ", event.version,
                     " and the coordinator is version ", options_.version,
                     ": install the same version on both"));
  }
  const Worker* known = find(event.worker);
  // After a coordinator restart, the host of a worker is unknown until it has registered.
  if (known == nullptr || known->incarnation == event.incarnation || known->slots == 0)
    return absl::OkStatus();
  const bool has_reported = known->renewals == 0 && is_responsive(*known, now);
  if (known->connected && (has_reported || known->postponements > 0)) {
    return absl::AlreadyExistsError(absl::StrCat("a worker named ", event.worker.value(),
                                                 " is already connected from host ", known->host,
                                                 ": give this one another --name"));
  }
  if (!is_on_the_same_machine(*known, event) && !has_left(*known)) {
    // The worker tries again.
    return absl::UnavailableError(absl::StrCat(
        "a worker named ", event.worker.value(), " on host ", known->host,
        " is silent, but may still run: this one can take its name when its lease has ended"));
  }
  return absl::OkStatus();
}

Worker& Fleet::add(const WorkerRegistered& event, Instant now) {
  Worker& worker = workers_[event.worker];
  worker.name = event.worker;
  worker.incarnation = event.incarnation;
  worker.host = event.host;
  worker.version = event.version;
  worker.rendezvous_address = event.rendezvous_address;
  worker.addresses = event.addresses;
  worker.program_ports = event.program_ports;
  worker.place = event.place;
  worker.labels = event.labels;
  absent_.erase(event.worker);
  worker.gpus = event.gpus;
  worker.no_gpus_because = event.no_gpus_because;
  worker.slots = event.slots;
  worker.connected = true;
  worker.disconnected_at.reset();
  worker.given_up = false;
  worker.last_message = now;
  worker.postponements = 0;
  worker.renewals = 0;
  worker.heartbeats = 0;
  visit_by(now + std::min(lease(), options_.torn_down_within));
  return worker;
}

void Fleet::await_workers_of(const Job& job, Instant now) {
  for (const RankPlacement& rank : job.placement) {
    Worker& worker = workers_[rank.worker];
    worker.name = rank.worker;
    worker.incarnation = rank.incarnation;
    worker.last_message = now;
    worker.postponements = 0;
    worker.renewals = 0;
  }
  visit_by(now + std::min(lease(), options_.torn_down_within));
}

void Fleet::begin_waiting(bool has_had_jobs, Instant now) {
  (void)adapt_pace(now);
  const Duration more = time_to_register(workers_.size());
  if (has_had_jobs) {
    registering_until_ = now + lease() + more;
    upgrading_until_ = now + kUpgradeTime;
  }
  for (auto& [name, worker] : workers_) worker.last_message += more;
}

// A worker that has received a shorter lease ends its ranks earlier, which does no harm. A worker
// that has not received it yet may end them only at the end of the longer one. So the longer one
// applies until a silent worker's longer lease has ended, with a margin for messages under way.
bool Fleet::adapt_pace(Instant now) {
  constexpr int64_t kLeasesUntilReceived = 2;
  const Pace next = next_pace(pace_, workers_.size(), options_);
  if (next == pace_) return false;
  allowed_ = longest(allowed_, next);
  allowed_until_ = now + kLeasesUntilReceived * allowed_.lease;
  pace_ = next;
  return true;
}

// The longest pause decays slowly: a worker that was late with ranks may be as late again.
bool Fleet::observe_heartbeat(Worker& worker, Instant now) {
  constexpr Duration kPauseMax = std::chrono::seconds(3);
  constexpr double kPauseDecay = 0.99;
  if (worker.heartbeats > 0) {
    const Duration pause = std::min(now - worker.last_heartbeat, kPauseMax);
    const auto before = std::chrono::duration_cast<Duration>(worker.longest_pause * kPauseDecay);
    worker.longest_pause = std::max(pause, before);
  }
  worker.last_heartbeat = now;
  if (!std::exchange(worker.given_up, false)) return false;
  if (!worker.orphans.empty()) worker.orphans_since = now;
  return true;
}

void Fleet::excuse(Duration time, Instant now) {
  // Every available worker gets this time to report.
  reachable_until_ = excused_until_ = now + silence_max();
  if (outage_) outage_->since += time;
  if (is_registering(now - time)) registering_until_ += time;
  for (auto& [name, worker] : absent_) worker.last_message += time;
  for (auto& [name, worker] : workers_) {
    worker.last_message += time;
    worker.last_heartbeat += time;
    if (worker.disconnected_at) *worker.disconnected_at += time;
    worker.check.deadline += time;
    if (worker.orphans_since) *worker.orphans_since += time;
  }
}

const NodePlace* Fleet::place_of(const WorkerName& name) const {
  const Worker* worker = find(name);
  if (worker == nullptr || worker->slots == 0) {
    const auto absent = absent_.find(name);
    worker = absent == absent_.end() ? nullptr : &absent->second;
  }
  return worker != nullptr && worker->place.is_known() ? &worker->place : nullptr;
}

void Fleet::erase(const WorkerName& name) {
  const auto worker = workers_.find(name);
  if (worker == workers_.end()) return;
  if (worker->second.slots > 0) {
    if (absent_.size() >= kAbsentMax) forget_oldest_absent();
    absent_.insert_or_assign(name, std::move(worker->second));
  }
  workers_.erase(worker);
  if (!workers_.empty()) return;
  outage_.reset();
  refused_at_.reset();
}

// Forgets the older half at once, so that the loss of a large fleet does not search for the oldest
// one each time.
void Fleet::forget_oldest_absent() {
  std::vector<Instant> times;
  for (const auto& [name, worker] : absent_) times.push_back(worker.last_message);
  const auto middle = times.begin() + std::ssize(times) / 2;
  std::ranges::nth_element(times, middle);
  std::erase_if(absent_, [&](const auto& entry) { return entry.second.last_message <= *middle; });
}

void Fleet::postpone(const WorkerName& name, Instant now) {
  Worker* worker = find(name);
  if (worker == nullptr) return;
  if (worker->postponements >= kPostponementsMax) return;
  ++worker->postponements;
  worker->last_message = std::max(worker->last_message, now + allowed_.idle - lease());
}

bool Fleet::takes_ranks(const Worker& worker) const {
  return worker.connected && !worker.leaving && !worker.given_up &&
         worker.version == options_.version;
}

bool Fleet::awaits_upgrade(const Worker& worker, Instant now) const {
  return worker.connected && worker.version != options_.version && now < upgrading_until_;
}

bool Fleet::is_away(const WorkerName& name) const {
  const Worker* worker = find(name);
  if (worker != nullptr && !worker->stuck.empty()) return false;
  return worker == nullptr || !worker->connected || worker->given_up || worker->check.id != 0;
}

bool Fleet::is_quiet(const Worker& worker, Instant now) const {
  return worker.last_message + 2 * allowed_.idle <= now;
}

Duration Fleet::silence_max() const {
  return std::min(std::max(options_.unreachable_after, kHeartbeatsMissed * heartbeat_interval()),
                  lease());
}

Duration Fleet::patience_with(const Worker& worker) const {
  return std::min(std::max(silence_max(), kPauseMargin * worker.longest_pause), lease());
}

bool Fleet::is_silent_for(const Worker& worker, Duration time, Instant now) const {
  const bool known = worker.slots > 0 && reachable_until_ <= now;
  return known && worker.last_message + time <= now;
}

bool Fleet::is_unreachable(const Worker& worker, Instant now) const {
  return is_silent_for(worker, silence_max(), now);
}

bool Fleet::is_responsive(const Worker& worker, Instant now) const {
  return worker.last_message + kHeartbeatsMissed * allowed_.idle > now;
}

std::vector<WorkerName> Fleet::expiring(Instant now) const {
  std::vector<WorkerName> names;
  if (!next_visit_ || *next_visit_ > now) return names;
  for (const auto& [name, worker] : workers_)
    if (worker.connected && lease_end(worker) <= now) names.push_back(name);
  return names;
}

std::vector<WorkerName> Fleet::take_expired(Instant now) {
  std::vector<WorkerName> names;
  if (!next_visit_ || *next_visit_ > now) return names;
  next_visit_.reset();
  // A lease that becomes shorter now applies from the next visit on: expiring() has used the longer
  // one, so leases of workers with unread messages have not been extended yet.
  const Duration judged_by = lease();
  if (allowed_until_ <= now) allowed_ = pace_;
  for (const auto& [name, worker] : workers_) {
    if (lease_end(worker, judged_by) <= now) {
      names.push_back(name);
      continue;
    }
    visit_by(lease_end(worker));
    if (worker.orphans_since) visit_by(*worker.orphans_since + options_.torn_down_within);
  }
  // The caller handles overdue orphans in the same step. Orphans that appear later are overdue
  // after torn_down_within.
  if (next_visit_)
    next_visit_ = std::clamp(*next_visit_, now + Duration(1), now + options_.torn_down_within);
  return names;
}

void Fleet::visit_by(Instant time) {
  next_visit_ = next_visit_ ? std::min(*next_visit_, time) : time;
}

SendToWorker send_action(const Worker& worker, WorkerPayload payload) {
  return {worker.name, worker.incarnation, std::move(payload)};
}

std::vector<SendToWorker> orders_to_stop_orphans(const Worker& worker,
                                                 const std::set<RankId>& orphans) {
  std::map<std::pair<JobId, Attempt>, std::vector<Rank>> attempts;
  for (const RankId& id : orphans) attempts[{id.job, id.attempt}].push_back(id.rank);
  std::vector<SendToWorker> orders;
  for (auto& [attempt, ranks] : attempts) {
    orders.push_back(send_action(
        worker, SendStopRanks{attempt.first, attempt.second, Duration::zero(),
                              "this launch is not the job's current one", std::move(ranks)}));
  }
  return orders;
}

bool waits_for_save(const Job& job, const CoreOptions& options) {
  return options.cancel_waits_for_save && job.cancel_requested && job.stop_grace > Duration::zero();
}

std::vector<SendToWorker> orders_to_stop(const Job& job, const RanksByWorker& ranks,
                                         const Fleet& fleet, const CoreOptions& options,
                                         std::string_view reason) {
  std::vector<SendToWorker> orders;
  const WorkerName* previous = nullptr;
  for (const RankPlacement& rank : job.placement) {
    if (previous != nullptr && *previous == rank.worker) continue;
    previous = &rank.worker;
    const Worker* worker = fleet.find(rank.worker);
    if (worker == nullptr) continue;
    std::vector<Rank> awaited = awaited_ranks(job, ranks, *worker);
    if (awaited.empty()) continue;
    orders.push_back(
        send_action(*worker, SendStopRanks{job.id, job.attempt, job.stop_grace, std::string(reason),
                                           std::move(awaited), waits_for_save(job, options)}));
  }
  return orders;
}

std::vector<Rank> awaited_ranks(const Job& job, const RanksByWorker& ranks, const Worker& worker) {
  std::vector<Rank> awaited;
  const auto here = ranks.find(worker.name);
  if (here == ranks.end()) return awaited;
  std::ranges::copy_if(here->second, std::back_inserter(awaited), [&](const Rank rank) {
    const auto index = static_cast<size_t>(rank.value());
    return job.placement[index].incarnation == worker.incarnation &&
           job.ranks[index].life != RankState::Life::kExited;
  });
  return awaited;
}

bool has_ranks(const Job& job, const RanksByWorker& ranks, const Worker& worker) {
  const auto here = ranks.find(worker.name);
  return here != ranks.end() && std::ranges::any_of(here->second, [&](const Rank rank) {
           const auto index = static_cast<size_t>(rank.value());
           return job.placement[index].incarnation == worker.incarnation &&
                  job.ranks[index].life != RankState::Life::kExited;
         });
}

bool awaits_a_worker(const Job& job, const RanksByWorker& ranks, const Fleet& fleet) {
  return std::ranges::any_of(ranks, [&](const auto& entry) {
    const Worker* worker = fleet.find(entry.first);
    if (worker == nullptr || (worker->connected && worker->missing.empty())) return false;
    return std::ranges::any_of(entry.second, [&](const Rank rank) {
      return job.ranks[static_cast<size_t>(rank.value())].life != RankState::Life::kExited;
    });
  });
}

}  // namespace muster::coordinator
