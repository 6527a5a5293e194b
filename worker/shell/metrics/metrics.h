// The worker's metrics in Prometheus' text format, and its readiness. The event loop sets the
// values; the HTTP server's thread reads them. Only a sample of a job's ranks, spread evenly over
// the job, has series of its own, so that a large job costs Prometheus no more than a small one.
// Histograms, counters and maxima cover all ranks.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "common/time/time.h"
#include "daemon/metric_words.h"
#include "worker/core/core.h"
#include "worker/shell/metrics/gpu_metrics.h"
#include "worker/shell/metrics/network_metrics.h"

namespace muster::worker {

// The registry of one worker's series.
class Metrics {
 public:
  struct Options {
    std::string version{};
    std::string worker{};
    std::string work_dir{};                       // empty: no disk metrics
    int32_t rank_series = daemon::kSeriesSample;  // maximum per job
  };
  explicit Metrics(Options options);

  // Sets the values that depend on the core. The shell calls it after each step of the core.
  void update(const Core& core, Instant now);

  void count_heartbeat(Instant now);
  void count_connection() { connections_.Increment(); }
  void count_log_bytes(size_t bytes) { log_bytes_.Increment(static_cast<double>(bytes)); }
  void count_exit(int exit_code, int signal);
  // Sets how many stack traces of ranks were written and lost since the worker's start.
  void set_stack_traces(uint64_t taken, uint64_t dropped);
  // Counts the steps and checkpoints that a rank has completed between two reads of its page, with
  // the figures `before` and `now`. The shell calls it after each read.
  void count_steps(const RankFigures& before, const RankFigures& now);

  // Sets the values of the GPUs. Called on the HTTP server's thread only.
  void set_gpus(const GpuReport& report, Instant now) { gpus_.update(report, gpus_used_, now); }
  // Sets the values of the network devices. Called on the HTTP server's thread only.
  void set_network(const NetworkReport& report, Instant now) { network_.update(report, now); }

  // Returns the page for Prometheus. Thread-safe.
  std::string text(Instant now) const;
  bool registered() const { return is_registered_; }
  bool has_ranks() const { return has_ranks_; }

 private:
  struct RankGauges {
    prometheus::Gauge* progress_age = nullptr;
    // The members below are null until the rank has completed a step.
    prometheus::Gauge* step = nullptr;
    prometheus::Gauge* step_seconds = nullptr;
    prometheus::Gauge* tokens_per_second = nullptr;
    prometheus::Gauge* loss = nullptr;
    prometheus::Gauge* grad_norm = nullptr;
    prometheus::Counter* data_wait = nullptr;
    prometheus::Gauge* checkpoint_step = nullptr;  // also null until a checkpoint is saved
    prometheus::Gauge* checkpoint_seconds = nullptr;
    prometheus::Gauge* mfu = nullptr;        // also null if the device's peak is unknown
    prometheus::Gauge* eval_loss = nullptr;  // also null until the first evaluation
  };
  using GaugeFamily = prometheus::Family<prometheus::Gauge>;

  void update_oldest(const Core& core, Instant now);
  void update_rank(const RankKey& key, const Core::RankState& rank, Instant now);
  void remove_rank(const RankGauges& gauges);

  const Options options_;
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  prometheus::Gauge& slots_;
  prometheus::Gauge& ranks_running_;
  prometheus::Gauge& registered_;
  prometheus::Gauge& reports_waiting_;
  prometheus::Counter& heartbeats_;
  GaugeFamily& heartbeat_age_;
  prometheus::Counter& connections_;
  prometheus::Counter& log_bytes_;
  prometheus::Family<prometheus::Counter>& exits_;
  prometheus::Counter& stack_traces_;
  prometheus::Counter& stack_traces_dropped_;
  prometheus::Histogram& steps_;
  prometheus::Family<prometheus::Counter>& checkpoints_;
  prometheus::Counter& checkpoint_stall_;
  GaugeFamily& disk_bytes_;
  GaugeFamily& disk_free_;
  GaugeFamily& oldest_progress_;
  GaugeFamily& step_;
  GaugeFamily& checkpoint_step_;
  GaugeFamily& checkpoint_seconds_;
  GaugeFamily& step_seconds_;
  GaugeFamily& tokens_per_second_;
  GaugeFamily& loss_;
  GaugeFamily& grad_norm_;
  prometheus::Family<prometheus::Counter>& data_wait_;
  GaugeFamily& eval_loss_;
  GaugeFamily& mfu_;
  GaugeFamily& progress_age_;
  GpuMetrics gpus_;
  NetworkMetrics network_;
  std::atomic<int32_t> gpus_used_{0};
  std::map<RankKey, RankGauges> ranks_;
  std::map<JobId, prometheus::Gauge*> oldest_;
  std::atomic<bool> is_registered_{false};
  std::atomic<bool> has_ranks_{false};
  std::atomic<int64_t> last_heartbeat_ns_{0};  // see to_ns(); 0 before the first heartbeat
};

}  // namespace muster::worker
