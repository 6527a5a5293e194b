#include "coordinator/shell/metrics/fleet_metrics.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <vector>

#include "coordinator/shell/metrics/metric_label.h"
#include "daemon/metric_families.h"
#include "daemon/metric_words.h"

namespace muster::coordinator {
namespace {

using daemon::counters;
using daemon::gauges;

// A connected worker that was silent for longer than this has series: several heartbeats of any
// usual interval.
constexpr Duration kSilent = std::chrono::seconds(5);

}  // namespace

FleetMetrics::FleetMetrics(prometheus::Registry& registry, int32_t sample)
    : sample_(sample),
      workers_(gauges<"muster_workers">(registry)),
      all_slots_(gauges<"muster_slots">(registry)),
      age_max_(gauges<"muster_fleet_heartbeat_age_max_seconds">(registry)),
      age_(gauges<"muster_fleet_heartbeat_age_seconds">(registry)),
      connected_(gauges<"muster_fleet_connected">(registry)),
      slots_(gauges<"muster_fleet_slots">(registry)),
      slots_used_(gauges<"muster_fleet_slots_used">(registry)),
      excluded_(gauges<"muster_fleet_excluded">(registry)),
      exclusions_(counters<"muster_fleet_exclusions_total">(registry)),
      checks_(counters<"muster_fleet_checks_total">(registry)) {
  // Starts at 0: Prometheus sees no increase if a series begins with 1.
  for (const SuspicionRule& rule : kSuspicionRules)
    exclusions_.Add({{"cause", metric_label(rule.name)}});
  for (const char* result : {"passed", "failed"}) checks_.Add({{"result", result}});
}

void FleetMetrics::update(const Core& core, Instant now) {
  const NodeUses used = core.use_by_worker();
  find_lost(core, now);
  update_totals(core, used, now);
  const std::set<WorkerName> names = shown(core, now);
  std::erase_if(series_, [&](const auto& entry) {
    if (names.contains(entry.first)) return false;
    remove(entry.second);
    return true;
  });
  for (const WorkerName& name : names) {
    const auto worker = core.workers().find(name);
    if (worker == core.workers().end()) {
      update_lost(name, lost_.at(name), now);
      continue;
    }
    const auto count = used.find(name);
    update_worker(worker->second, count == used.end() ? 0 : count->second.slots, now);
  }
  update_nodes(core);
}

// Finds workers that were present at the last scrape, had not announced their shutdown, and are
// absent now. Both maps are ordered by name.
void FleetMetrics::find_lost(const Core& core, Instant now) {
  auto seen = seen_.begin();
  const auto forget_seen = [&] {
    if (!seen->second.leaving) lost_[seen->first] = seen->second.last_message;
    seen = seen_.erase(seen);
  };
  for (const auto& [name, worker] : core.workers()) {
    while (seen != seen_.end() && seen->first < name) forget_seen();
    if (seen == seen_.end() || name < seen->first) seen = seen_.emplace_hint(seen, name, Seen{});
    seen->second = {worker.last_message, worker.leaving};
    ++seen;
  }
  while (seen != seen_.end()) forget_seen();
  std::erase_if(lost_, [&](const auto& entry) {
    return core.workers().contains(entry.first) || now - entry.second > kLostKept;
  });
}

void FleetMetrics::remove(const WorkerSeries& series) {
  age_.Remove(series.age);
  connected_.Remove(series.connected);
  if (series.slots == nullptr) return;
  slots_.Remove(series.slots);
  slots_used_.Remove(series.slots_used);
}

void FleetMetrics::update_totals(const Core& core, const NodeUses& used, Instant now) {
  int64_t connected = 0;
  int64_t slots = 0;
  int64_t taken = 0;
  Duration oldest{};
  auto count = used.begin();  // both are ordered by name
  for (const auto& [name, worker] : core.workers()) {
    connected += worker.connected ? 1 : 0;
    slots += worker.slots;
    oldest = std::max(oldest, now - worker.last_message);
    while (count != used.end() && count->first < name) ++count;
    if (count != used.end() && count->first == name) taken += count->second.slots;
  }
  const auto all = static_cast<int64_t>(core.workers().size());
  workers_.Add({{"state", "connected"}}).Set(static_cast<double>(connected));
  workers_.Add({{"state", "away"}}).Set(static_cast<double>(all - connected));
  workers_.Add({{"state", "lost"}}).Set(static_cast<double>(lost_.size()));
  all_slots_.Add({{"state", "used"}}).Set(static_cast<double>(taken));
  all_slots_.Add({{"state", "free"}}).Set(static_cast<double>(std::max<int64_t>(0, slots - taken)));
  prometheus::Gauge& age = age_max_.Add({});
  age.Set(to_seconds(oldest));
  if (all == 0) age_max_.Remove(&age);
}

std::set<WorkerName> FleetMetrics::shown(const Core& core, Instant now) const {
  std::set<WorkerName> names;
  std::vector<std::pair<Duration, WorkerName>> silent;
  int64_t index = 0;
  const auto count = static_cast<int64_t>(core.workers().size());
  for (const auto& [name, worker] : core.workers()) {
    if (daemon::is_sampled(index++, count, sample_)) names.insert(name);
    const Duration age = now - worker.last_message;
    if (!worker.connected || age > kSilent) silent.emplace_back(-age, name);
  }
  for (const auto& [name, last_message] : lost_) silent.emplace_back(last_message - now, name);
  const auto last =
      silent.begin() + static_cast<std::ptrdiff_t>(std::min(silent.size(), kSilentShown));
  std::partial_sort(silent.begin(), last, silent.end());
  for (auto it = silent.begin(); it != last; ++it) names.insert(it->second);
  return names;
}

void FleetMetrics::update_worker(const Worker& worker, int32_t used, Instant now) {
  WorkerSeries& series = series_[worker.name];
  if (series.slots == nullptr) {
    const daemon::MetricLabels labels = {{"worker", worker.name.value()}};
    series = {&age_.Add(labels), &connected_.Add(labels), &slots_.Add(labels),
              &slots_used_.Add(labels)};
  }
  series.age->Set(to_seconds(now - worker.last_message));
  series.connected->Set(worker.connected ? 1 : 0);
  series.slots->Set(worker.slots);
  series.slots_used->Set(used);
}

void FleetMetrics::update_lost(const WorkerName& name, Instant last_message, Instant now) {
  WorkerSeries& series = series_[name];
  if (series.slots != nullptr) remove(std::exchange(series, {}));
  const daemon::MetricLabels labels = {{"worker", name.value()}};
  series.age = &age_.Add(labels);
  series.connected = &connected_.Add(labels);
  series.age->Set(to_seconds(now - last_message));
  series.connected->Set(0);
}

void FleetMetrics::count_node(const NodeDecision& change) {
  switch (change.what) {
    case NodeDecision::What::kExcluded:
      exclusions_.Add({{"cause", metric_label(rule_of(change.suspicion).name)}}).Increment();
      return;
    case NodeDecision::What::kCheckPassed:
      checks_.Add({{"result", "passed"}}).Increment();
      return;
    case NodeDecision::What::kCheckFailed:
      checks_.Add({{"result", "failed"}}).Increment();
      return;
    case NodeDecision::What::kAdmitted:
      return;
  }
}

void FleetMetrics::update_nodes(const Core& core) {
  std::array<int64_t, kSuspicions> counts{};
  for (const auto& [name, node] : core.nodes()) {
    if (node.excluded) ++counts[static_cast<size_t>(node.suspicion)];
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    excluded_.Add({{"cause", metric_label(kSuspicionRules[i].name)}})
        .Set(static_cast<double>(counts[i]));
  }
}

}  // namespace muster::coordinator
