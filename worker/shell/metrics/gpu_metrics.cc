#include "worker/shell/metrics/gpu_metrics.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "daemon/metric_families.h"
#include "worker/gpus/nvml_api.h"
#include "worker/shell/metrics/set_counter.h"

namespace muster::worker {
namespace {

using daemon::counters;
using daemon::gauges;
using Labels = std::map<std::string, std::string>;

constexpr std::array<std::pair<const char*, uint64_t>, 4> kThrottles = {{
    {"power_cap", kThrottlePowerCap},
    {"thermal", kThrottleThermalSoftware | kThrottleThermalHardware},
    {"power_brake", kThrottlePowerBrake},
    {"hardware", kThrottleHardware},
}};

Labels with(Labels labels, const char* name, std::string value) {
  labels.emplace(name, std::move(value));
  return labels;
}

template <class T>
void set(prometheus::Family<prometheus::Gauge>& family, const Labels& labels,
         const std::optional<T>& value) {
  if (value) family.Add(labels).Set(static_cast<double>(*value));
}

}  // namespace

GpuMetrics::GpuMetrics(prometheus::Registry& registry)
    : gpus_(gauges<"muster_worker_gpus">(registry)),
      used_(gauges<"muster_worker_gpus_used">(registry)),
      age_(gauges<"muster_worker_gpu_answer_age_seconds">(registry)),
      info_(gauges<"muster_gpu_info">(registry)),
      healthy_(gauges<"muster_gpu_healthy">(registry)),
      memory_(gauges<"muster_gpu_memory_bytes">(registry)),
      memory_used_(gauges<"muster_gpu_memory_used_bytes">(registry)),
      utilization_(gauges<"muster_gpu_utilization_ratio">(registry)),
      temperature_(gauges<"muster_gpu_temperature_celsius">(registry)),
      power_(gauges<"muster_gpu_power_watts">(registry)),
      clock_(gauges<"muster_gpu_clock_hertz">(registry)),
      throttled_(gauges<"muster_gpu_throttled">(registry)),
      ecc_(counters<"muster_gpu_ecc_errors_total">(registry)),
      row_remap_failed_(gauges<"muster_gpu_row_remap_failed">(registry)),
      xids_(counters<"muster_gpu_xid_errors_total">(registry)) {}

void GpuMetrics::update(const GpuReport& report, int32_t used, Instant now) {
  gpus_.Add({}).Set(static_cast<double>(report.gpus.size()));
  used_.Add({}).Set(used);
  if (report.has_nvml()) age_.Add({}).Set(std::max(0.0, to_seconds(now - report.answered)));
  for (const GpuState& state : report.gpus) update_one(state);
}

void GpuMetrics::update_one(const GpuState& state) {
  const Labels gpu = {{"gpu", std::to_string(state.gpu.index)}};
  Labels info = with(gpu, "model", state.gpu.name);
  info.emplace("uuid", state.gpu.uuid);
  info_.Add(info).Set(1);
  healthy_.Add(gpu).Set(state.problem.empty() ? 1 : 0);
  memory_.Add(gpu).Set(static_cast<double>(state.gpu.memory_bytes));
  const GpuHealth& health = state.health;
  set(memory_used_, gpu, health.memory_used_bytes);
  set(utilization_, gpu, health.utilization);
  set(temperature_, gpu, health.temperature_celsius);
  set(power_, gpu, health.power_watts);
  set(clock_, with(gpu, "clock", "sm"), health.sm_clock_hertz);
  set(clock_, with(gpu, "clock", "memory"), health.memory_clock_hertz);
  if (health.throttle_reasons) {
    for (const auto& [reason, bits] : kThrottles)
      throttled_.Add(with(gpu, "reason", reason)).Set((*health.throttle_reasons & bits) != 0);
  }
  set_counter(ecc_, with(gpu, "type", "corrected"), health.ecc_corrected);
  set_counter(ecc_, with(gpu, "type", "uncorrected"), health.ecc_uncorrected);
  set(row_remap_failed_, gpu, health.row_remap_failed);
  for (const auto& [xid, count] : state.xids)
    set_counter(xids_, with(gpu, "xid", std::to_string(xid)), std::optional(count));
}

}  // namespace muster::worker
