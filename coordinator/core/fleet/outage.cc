// Outages of the coordinator's own network, and leases of silent workers whose ranks run.
#include <algorithm>
#include <utility>

#include "coordinator/core/fleet/fleet.h"

namespace muster::coordinator {
namespace {

// Heartbeats that a worker without ranks has missed in an outage.
constexpr int32_t kHeartbeatsInOutage = 3;
// The number of idle heartbeat intervals within which workers became silent "at once", because each
// has sent its last message at another time of its interval.
constexpr int32_t kIntervalsAtOnce = 2;
// One silent worker is the usual loss of a node, also in a fleet of one.
constexpr size_t kWorkersMin = 2;

}  // namespace

void Fleet::watch_outage(Instant now) {
  if (now < next_outage_check_) return;
  next_outage_check_ = now + allowed_.idle / 2;
  // A worker whose stream broke before the worker was late has lost a connection, not its network.
  const auto fell_silent = [&](const Worker& worker) {
    return worker.slots > 0 && !worker.given_up &&
           worker.last_message + kHeartbeatsInOutage * allowed_.idle <= now &&
           (!worker.disconnected_at ||
            worker.last_message + allowed_.idle <= *worker.disconnected_at);
  };
  Instant newest{};
  for (const auto& [name, worker] : workers_)
    if (fell_silent(worker)) newest = std::max(newest, worker.last_message);
  size_t known = 0;
  size_t silent = 0;
  size_t silent_at_once = 0;
  Instant since = now;
  for (const auto& [name, worker] : workers_) {
    known += worker.slots > 0 && !worker.given_up ? 1 : 0;
    if (!fell_silent(worker)) continue;
    ++silent;
    if (worker.last_message + kIntervalsAtOnce * allowed_.idle < newest) continue;
    ++silent_at_once;
    since = std::min(since, worker.last_message);
  }
  const bool is_total = silent == known;
  const bool is_outage = silent_at_once >= kWorkersMin && 2 * silent_at_once > known &&
                         (is_total || now < since + kPartialOutageMax);
  outage_.reset();
  if (is_outage) outage_ = Outage{since, is_total};
  // During an outage, the silence of a worker that began earlier shows nothing either.
  for (auto& [name, worker] : workers_) worker.in_outage = is_outage && fell_silent(worker);
}

// Any message after a time without messages shows that the network is back. Otherwise only one of a
// worker in the outage does.
void Fleet::end_outage_after_message(const Worker& sender, Instant now) {
  if (!outage_ || (!sender.in_outage && !outage_->is_total)) return;
  const Duration time = now - outage_->since;
  if (outage_->is_total) ended_outage_ = time;
  outage_.reset();
  for (auto& [name, worker] : workers_) {
    if (!std::exchange(worker.in_outage, false)) continue;
    worker.last_message = now;
    worker.last_heartbeat += time;
    if (worker.disconnected_at) worker.disconnected_at = now;
    worker.check.deadline += time;
    if (worker.orphans_since) *worker.orphans_since += time;
  }
  reachable_until_ = excused_until_ = now + silence_max();
}

bool Fleet::has_expired(const Worker& worker, Duration lease, Instant now) const {
  return !worker.in_outage && std::max(worker.last_message, worker.ran_at) + lease <= now;
}

void Fleet::renew_lease(const WorkerName& name, Instant ran_at) {
  Worker& worker = workers_.at(name);
  worker.ran_at = std::max(worker.ran_at, ran_at);
  visit_by(worker.ran_at + lease());
}

}  // namespace muster::coordinator
