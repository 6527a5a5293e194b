#include "worker/shell/metrics/network_metrics.h"

#include <string>

#include "daemon/metric_families.h"
#include "worker/shell/metrics/raise_counter.h"

namespace muster::worker {

NetworkMetrics::NetworkMetrics(prometheus::Registry& registry)
    : up_(daemon::gauges<"muster_network_up">(registry)),
      healthy_(daemon::gauges<"muster_network_healthy">(registry)),
      rate_(daemon::gauges<"muster_network_rate_bits_per_second">(registry)),
      bytes_(daemon::counters<"muster_network_bytes_total">(registry)),
      errors_(daemon::counters<"muster_network_errors_total">(registry)) {}

void NetworkMetrics::update(const NetworkReport& report) {
  for (const NetworkState& state : report.devices) {
    const std::string& device = state.device.name;
    const NetworkCounters& counters = state.device.counters;
    up_.Add({{"device", device}, {"kind", std::string(network_kind_name(state.device.kind))}})
        .Set(state.device.is_up ? 1 : 0);
    healthy_.Add({{"device", device}}).Set(state.problem.empty() ? 1 : 0);
    constexpr double kGiga = 1e9;
    if (state.best_gigabits_per_second > 0)
      rate_.Add({{"device", device}}).Set(kGiga * state.device.gigabits_per_second.value_or(0));
    raise_counter(bytes_, {{"device", device}, {"direction", "sent"}}, counters.sent_bytes);
    raise_counter(bytes_, {{"device", device}, {"direction", "received"}}, counters.received_bytes);
    raise_counter(errors_, {{"device", device}, {"type", "damaged"}}, counters.errors);
    raise_counter(errors_, {{"device", device}, {"type", "dropped"}}, counters.drops);
    raise_counter(errors_, {{"device", device}, {"type", "retransmitted"}},
                  counters.retransmissions);
    raise_counter(errors_, {{"device", device}, {"type", "timeout"}}, counters.timeouts);
    raise_counter(errors_, {{"device", device}, {"type", "lost_link"}}, counters.link_losses);
  }
}

}  // namespace muster::worker
