// Outages in which most workers are silent at once.
#include <algorithm>
#include <utility>

#include "coordinator/core/fleet/fleet.h"

namespace muster::coordinator {
namespace {

// A stream that breaks later than two heartbeats after the worker's last message breaks because
// nothing arrives. If it breaks earlier, its host had a network.
constexpr int32_t kHeartbeatsUntilSilent = 2;

}  // namespace

bool Fleet::has_left(const Worker& worker) const {
  return worker.disconnected_at && worker.postponements == 0 && worker.renewals == 0 &&
         *worker.disconnected_at < worker.last_message + kHeartbeatsUntilSilent * allowed_.idle;
}

void Fleet::watch_outage(Instant now) {
  if (now < next_outage_check_) return;
  next_outage_check_ = now + heartbeat_interval() / 2;
  size_t present = 0;  // workers that may report again
  size_t quiet = 0;    // those of them that are silent
  size_t known = 0;    // those of `present` whose silence is no end of their streams
  size_t silent = 0;   // those of `known` that are silent
  Outage outage;
  for (const auto& [name, worker] : workers_) {
    outage.since = std::max(outage.since, worker.last_message);
    const size_t is_silent = is_quiet(worker, now) ? 1 : 0;
    if (worker.leaving && !worker.connected) continue;  // it is expected to stay away
    ++present;
    quiet += is_silent;
    if (has_left(worker)) continue;
    ++known;
    silent += is_silent;
  }
  if (silent == known && present > 1) {  // those whose streams broke count as well
    known = present;
    silent = quiet;
  }
  outage.is_total = silent == known;
  outage.leases = outage.is_total && known > 1 ? kLeasesOfAll : kLeasesOfMost;
  if (!outage.is_total) outage.since = Instant{};
  std::optional<Outage> next;
  if (2 * silent > known) next = outage;
  if (next == outage_) return;
  outage_ = next;
  if (!is_cut_off()) refused_at_.reset();
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
  refused_at_.reset();
  if (is_total) excuse(time, now);
  for (auto& [name, other] : workers_) {
    const bool is_renewed = is_total || (is_quiet(other, now) && !has_left(other));
    if (!is_renewed || other.renewals >= kPostponementsMax) continue;
    ++other.renewals;
    other.last_message = now;
  }
  visit_by(now + lease());
  return time;
}

void Fleet::record_refusal(Instant now) {
  if (!is_cut_off() || refused_at_) return;
  refused_at_ = now;
  visit_by(now);  // other leases apply
}

Instant Fleet::lease_end(const Worker& worker, Duration lease) const {
  const Instant end = worker.last_message + lease;
  if (!outage_) return end;
  if (outage_->is_total) {
    Instant last = outage_->since + outage_->leases * lease;
    if (refused_at_) last = std::min(last, *refused_at_ + kLeasesOfMost * lease);
    return std::max(end, last);
  }
  return has_left(worker) ? end : worker.last_message + outage_->leases * lease;
}

Instant Fleet::judged_from(const Worker& worker) const {
  const bool is_in_outage = outage_ && (outage_->is_total || !has_left(worker));
  return is_in_outage || worker.renewals > 0 ? lease_end(worker) : Instant{};
}

}  // namespace muster::coordinator
