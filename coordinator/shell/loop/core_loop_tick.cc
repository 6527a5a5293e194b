// The loop's Ticks, its load, and how it takes events from the queue.
#include <algorithm>

#include <spdlog/spdlog.h>

#include "coordinator/shell/loop/core_loop.h"

namespace muster::coordinator {

// In a large fleet, waits a moment for further events after the first one: an iteration for
// each heartbeat would cost more than the heartbeat.
std::deque<CoreLoop::Queued> CoreLoop::take_items(std::optional<Instant> deadline) {
  constexpr size_t kManyWorkers = 1'000;
  constexpr Duration kGathered = std::chrono::milliseconds(2);
  std::deque<Queued> items = queue_.pop_all(deadline);
  if (links_.size() < kManyWorkers || items.empty()) return items;
  queue_.wait_until_closed(kGathered);
  for (Queued& item : queue_.pop_all(Instant{})) items.push_back(std::move(item));
  return items;
}

// Returns a Tick with the workers whose messages wait in their connections. The queue has none of
// theirs: its events were taken before.
Tick CoreLoop::tick() {
  Tick event;
  for (const WorkerName& name : core_.silent_workers(now_)) {
    const auto link = links_.find({name, core_.workers().at(name).incarnation});
    if (link != links_.end() && link->second->has_unread()) event.unread.push_back(name);
  }
  if (!event.unread.empty())
    spdlog::warn(
        "messages of {} workers were not read before their leases ended: the leases continue",
        event.unread.size());
  event.is_behind = is_behind();
  log_pace();
  return event;
}

LoopLoad CoreLoop::load(Instant now) {
  const Duration age = backlog_.age(now);
  return {queue_.size() + backlog_.left(), age, life_.check(now).ok() && !patient_.is_waiting(),
          !patient_.is_waiting() && overload_.observe(age, now)};
}

absl::Status CoreLoop::admit_read(Instant now) {
  if (patient_.is_waiting()) return PatientStorage::refusal();
  return overload_.observe(backlog_.age(now), now) ? overload_.refusal() : absl::OkStatus();
}

bool is_late_reader(size_t unread, size_t samples) {
  constexpr size_t kParts = 4;
  constexpr size_t kByChance = 3;
  return unread > std::max(samples / kParts, kByChance);
}

// Samples some connections.
bool CoreLoop::is_behind() {
  constexpr size_t kSamples = 16;
  size_t unread = 0;
  const size_t samples = std::min(kSamples, links_.size());
  auto link = links_.upper_bound(sampled_);
  for (size_t i = 0; i < samples; ++i, ++link) {
    if (link == links_.end()) link = links_.begin();
    unread += link->second->has_unread() ? 1 : 0;
    sampled_ = link->first;
  }
  return is_late_reader(unread, samples);
}

void CoreLoop::log_pace() {
  const Pace& pace = core_.pace();
  if (pace.busy == logged_busy_) return;
  if (logged_busy_ != Duration::zero())
    spdlog::info(
        "{} workers: each sends a heartbeat every {} s (with ranks) or {} s; the lease is {} s",
        core_.workers().size(), to_seconds(pace.busy), to_seconds(pace.idle),
        to_seconds(pace.lease));
  logged_busy_ = pace.busy;
}

}  // namespace muster::coordinator
