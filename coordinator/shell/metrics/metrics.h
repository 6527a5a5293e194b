// The Prometheus metrics of jobs and the fleet, computed from the core's state on each scrape; only
// values that the state does not contain (the duration of each step, incidents) are collected from
// events. Used on the core loop's thread. Metrics of the coordinator itself are in shell_metrics.h.
//
// The page's size is bounded independently of the fleet; see job_metrics.h, incident_metrics.h and
// fleet_metrics.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <prometheus/registry.h>

#include "coordinator/core/core.h"
#include "coordinator/shell/metrics/fleet_goodput.h"
#include "coordinator/shell/metrics/fleet_metrics.h"
#include "coordinator/shell/metrics/incident_metrics.h"
#include "coordinator/shell/metrics/job_metrics.h"
#include "coordinator/shell/metrics/shell_metrics.h"
#include "daemon/metric_words.h"

namespace muster::coordinator {

struct MetricsOptions {
  // maximum number of workers with series, in addition to the most silent workers
  int32_t worker_series = daemon::kSeriesSample;
  int32_t job_series = daemon::kJobsShown;  // maximum number of jobs with series
  // the metrics of the coordinator itself; null: new ones
  std::shared_ptr<ShellMetrics> shell{};
};

class Metrics {
 public:
  explicit Metrics(Epoch epoch, MetricsOptions options = {});

  // Collects values from an event. Call it after each step of the core. Memory is bounded by the
  // core's jobs and the recently ended jobs, even if no scraper reads the page.
  void observe(const Core& core, const Event& event) {
    goodput_.begin(core);
    jobs_.observe(core, event);
  }

  // Counts and shows an incident. Call it once for each incident, when the incident is opened.
  void count_incident(const Core& core, const Incident& incident, int64_t unix_ns) {
    jobs_.count_incident(core, incident, unix_ns);
    incidents_.count(core, incident, unix_ns);
  }
  // Shows a stored incident. Call it at the start for each stored incident.
  void restore_incident(const Core& core, const Incident& incident) {
    incidents_.restore(core, incident);
  }

  void count_node(const NodeDecision& change) { fleet_.count_node(change); }

  ShellMetrics& shell() { return *options_.shell; }

  // Returns the page in Prometheus' text format, without the series of jobs that ended more than
  // kSeriesKept ago, and without the metrics of shell().
  std::string render(const Core& core, Instant now, int64_t unix_ns);

 private:
  MetricsOptions options_;
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Gauge>& build_info_;
  JobMetrics jobs_;
  IncidentMetrics incidents_;
  FleetMetrics fleet_;
  FleetGoodput goodput_;
};

}  // namespace muster::coordinator
