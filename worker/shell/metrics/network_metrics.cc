#include "worker/shell/metrics/network_metrics.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "daemon/metric_families.h"
#include "worker/shell/metrics/set_counter.h"

namespace muster::worker {

NetworkMetrics::NetworkMetrics(prometheus::Registry& registry)
    : age_{daemon::gauges<"muster_network_reading_age_seconds">(registry)},
      up_{daemon::gauges<"muster_network_up">(registry)},
      healthy_{daemon::gauges<"muster_network_healthy">(registry)},
      rate_{daemon::gauges<"muster_network_rate_bits_per_second">(registry)},
      bytes_{daemon::counters<"muster_network_bytes_total">(registry)},
      errors_{daemon::counters<"muster_network_errors_total">(registry)} {}

template <class Metric>
void NetworkMetrics::Series<Metric>::remove_old() {
  for (Metric* metric : before)
    if (!now.contains(metric)) family.Remove(metric);
  before = std::exchange(now, {});
}

void NetworkMetrics::update(const NetworkReport& report, Instant now) {
  using Labels = std::map<std::string, std::string>;
  const auto set = [](Series<prometheus::Gauge>& series, const Labels& labels, double value) {
    prometheus::Gauge& gauge = series.family.Add(labels);
    gauge.Set(value);
    series.now.insert(&gauge);
  };
  const Instant read =
      report.measured == Instant{} ? report.reading_since.value_or(now) : report.measured;
  set(age_, {}, std::max(0.0, to_seconds(now - read)));
  for (const NetworkState& state : report.devices) {
    const std::string& device = state.device.name;
    const NetworkCounters& counters = state.device.counters;
    if (state.device.link != LinkState::kUnknown)
      set(up_, {{"device", device}, {"kind", std::string(network_kind_name(state.device.kind))}},
          state.device.link == LinkState::kUp ? 1 : 0);
    set(healthy_, {{"device", device}}, problem_of_device(state, now).empty() ? 1 : 0);
    constexpr double kGiga = 1e9;
    if (state.best_gigabits_per_second > 0)
      set(rate_, {{"device", device}}, kGiga * state.device.gigabits_per_second.value_or(0));
    const auto count = [&](Series<prometheus::Counter>& series, const char* label,
                           const char* label_value, const std::optional<uint64_t>& value) {
      if (prometheus::Counter* counter =
              set_counter(series.family, {{"device", device}, {label, label_value}}, value))
        series.now.insert(counter);
    };
    count(bytes_, "direction", "sent", counters.sent_bytes);
    count(bytes_, "direction", "received", counters.received_bytes);
    count(errors_, "type", "damaged", counters.errors);
    count(errors_, "type", "dropped", counters.drops);
    count(errors_, "type", "retransmitted", counters.retransmissions);
    count(errors_, "type", "timeout", counters.timeouts);
    count(errors_, "type", "lost_link", counters.link_losses);
  }
  age_.remove_old();
  up_.remove_old();
  healthy_.remove_old();
  rate_.remove_old();
  bytes_.remove_old();
  errors_.remove_old();
}

}  // namespace muster::worker
