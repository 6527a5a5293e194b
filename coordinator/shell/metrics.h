// The coordinator's Prometheus metrics, computed from the core's state when they are asked for; only what a
// gauge cannot say afterwards (the time of each step, incidents) is gathered as events pass. On the core loop's thread.
//
// How large the page can get does not depend on the fleet: job_metrics.h, incident_metrics.h and fleet_metrics.h have the bounds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <prometheus/registry.h>

#include "coordinator/core/core.h"
#include "coordinator/shell/fleet_goodput.h"
#include "coordinator/shell/fleet_metrics.h"
#include "coordinator/shell/incident_metrics.h"
#include "coordinator/shell/job_metrics.h"
#include "daemon/metric_words.h"

namespace muster::coordinator {

struct MetricsOptions {
  std::string state_dir{};  // empty: no disk is looked at
  int32_t worker_series =
      daemon::kSeriesSample;  // at most so many workers have series, besides those that stand out
  int32_t job_series = daemon::kJobsShown;  // at most so many jobs have series
};

class Metrics {
 public:
  explicit Metrics(Epoch epoch, MetricsOptions options = {});

  // After each step of the core. Keeps no more than the core's jobs and those that ended lately, scraped or not.
  void observe(const Core& core, const Event& event) {
    goodput_.begin(core);
    jobs_.observe(core, event);
  }

  // Once for each incident, when it is opened.
  void count_incident(const Core& core, const Incident& incident, int64_t unix_ns) {
    jobs_.count_incident(core, incident, unix_ns);
    incidents_.count(core, incident, unix_ns);
  }
  // At start, each incident that is stored.
  void restore_incident(const Core& core, const Incident& incident) {
    incidents_.restore(core, incident);
  }

  void count_node(const NodeTold& told) { fleet_.count_node(told); }

  // The page in Prometheus' text format. Series of jobs that ended more than kSeriesKept ago are gone.
  std::string render(const Core& core, Instant now, int64_t unix_ns);

 private:
  MetricsOptions options_;
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Gauge>& build_info_;
  prometheus::Gauge& leader_;
  prometheus::Family<prometheus::Gauge>& disk_bytes_;
  prometheus::Family<prometheus::Gauge>& disk_free_;
  JobMetrics jobs_;
  IncidentMetrics incidents_;
  FleetMetrics fleet_;
  FleetGoodput goodput_;
};

}  // namespace muster::coordinator
