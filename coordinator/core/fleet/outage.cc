// Outages in which most workers are silent at once.
#include <algorithm>
#include <utility>

#include "coordinator/core/fleet/fleet.h"

namespace muster::coordinator {
namespace {

// A stream that breaks later than two heartbeats after the worker's last message breaks because
// nothing arrives. If it breaks earlier, its host had a network: the worker was killed or its
// stream was reset.
constexpr int32_t kHeartbeatsUntilSilent = 2;

bool has_left(const Worker& worker, Duration heartbeat_interval) {
  return worker.disconnected_at && worker.postponements == 0 &&
         *worker.disconnected_at <
             worker.last_message + kHeartbeatsUntilSilent * heartbeat_interval;
}

}  // namespace

void Fleet::watch_outage(Instant now) {
  if (now < next_outage_check_) return;
  next_outage_check_ = now + heartbeat_interval() / 2;
  size_t known = 0;
  size_t silent = 0;
  Outage outage;
  for (const auto& [name, worker] : workers_) {
    outage.since = std::max(outage.since, worker.last_message);
    if (has_left(worker, allowed_.idle)) continue;
    ++known;
    silent += is_quiet(worker, now) ? 1 : 0;
  }
  outage.is_total = silent == known;
  outage.leases = outage.is_total && known > 1 ? kLeasesOfAll : kLeasesOfMost;
  if (!outage.is_total) outage.since = Instant{};
  std::optional<Outage> next;
  if (2 * silent > known) next = outage;
  if (next == outage_) return;
  outage_ = next;
  visit_by(now);  // other leases apply
}

// Any message after a time without messages shows that the network is back. While other workers
// report, only a message of a silent one does.
Duration Fleet::end_outage(const WorkerName& sender, Instant now) {
  if (!outage_) return Duration::zero();
  const Worker* worker = find(sender);
  const bool is_total = outage_->is_total;
  if (!is_total && (worker == nullptr || !is_quiet(*worker, now))) return Duration::zero();
  const Duration time = is_total ? now - outage_->since : Duration::zero();
  outage_.reset();
  if (is_total) excuse(time, now);
  for (auto& [name, other] : workers_) {
    const bool is_silent = is_total || is_quiet(other, now);
    if (!is_silent || has_left(other, allowed_.idle) || other.postponements >= kPostponementsMax)
      continue;
    ++other.postponements;
    other.last_message = now;
  }
  visit_by(now + lease());
  return time;
}

Instant Fleet::lease_end(const Worker& worker, Duration lease) const {
  const Instant end = worker.last_message + lease;
  if (!outage_) return end;
  if (outage_->is_total) return std::max(end, outage_->since + outage_->leases * lease);
  return has_left(worker, allowed_.idle) ? end : worker.last_message + outage_->leases * lease;
}

Instant Fleet::judged_from(const Worker& worker) const {
  const bool is_in_outage = outage_ && (outage_->is_total || !has_left(worker, allowed_.idle));
  return is_in_outage || worker.postponements > 0 ? lease_end(worker) : Instant{};
}

}  // namespace muster::coordinator
