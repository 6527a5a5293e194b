#include "coordinator/shell/metrics/metrics.h"

#include <utility>

#include "daemon/metric_families.h"
#include "daemon/metrics_text.h"

namespace muster::coordinator {

using daemon::gauges;

Metrics::Metrics(Epoch epoch, MetricsOptions options)
    : options_(std::move(options)),
      build_info_(gauges<"muster_coordinator_build_info">(registry_)),
      jobs_(registry_, options_.job_series),
      incidents_(registry_),
      fleet_(registry_, options_.worker_series),
      goodput_(registry_) {
  if (options_.shell == nullptr) options_.shell = std::make_shared<ShellMetrics>();
  options_.shell->begin_epoch(epoch);
}

std::string Metrics::render(const Core& core, Instant now, int64_t unix_ns) {
  build_info_.Add({{"version", core.options().version}}).Set(1);
  jobs_.update(core, now, unix_ns);
  incidents_.update(core, unix_ns);
  fleet_.update(core, now);
  goodput_.update(core, now);
  return daemon::metrics_text(registry_.Collect());
}

}  // namespace muster::coordinator
