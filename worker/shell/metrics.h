// The worker's metrics in Prometheus' text format, and its readiness. The event loop sets values;
// the HTTP server's thread reads them. Per-rank series exist for a sample of a job's ranks, spread
// evenly, so that a large job costs Prometheus no more than a small one. Histograms, counters and
// maxima cover all ranks.
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

#include "common/time.h"
#include "daemon/metric_words.h"
#include "worker/core/core.h"
#include "worker/shell/gpu_metrics.h"

namespace muster::worker {

class Metrics {
 public:
  struct Options {
    std::string version{};
    std::string worker{};
    std::string work_dir{};                       // empty: no disk metrics
    int32_t rank_series = daemon::kSeriesSample;  // maximum per job
  };
  explicit Metrics(Options options);

  // Call after each step of the core.
  void update(const Core& core, Instant now);

  void count_heartbeat(Instant now);
  void count_connection() { connections_.Increment(); }
  void count_log_bytes(size_t bytes) { log_bytes_.Increment(static_cast<double>(bytes)); }
  void count_exit(int exit_code, int signal);
  // Sets the number of ranks' stack traces since the start.
  void set_stack_traces(uint64_t taken, uint64_t dropped);
  // Call after each read of a rank's page. Counts the steps and checkpoints that were added since
  // the previous read.
  void count_steps(const RankFigures& before, const RankFigures& now);

  // Called on the HTTP server's thread.
  void set_gpus(const GpuReport& report, Instant now) { gpus_.update(report, gpus_used_, now); }

  // Thread-safe.
  std::string text(Instant now) const;
  bool registered() const { return is_registered_; }
  bool has_ranks() const { return has_ranks_; }

 private:
  struct RankGauges {
    prometheus::Gauge* progress_age = nullptr;
    // Null until the rank has completed a step …
    prometheus::Gauge* step = nullptr;
    prometheus::Gauge* step_seconds = nullptr;
    prometheus::Gauge* tokens_per_second = nullptr;
    prometheus::Gauge* loss = nullptr;
    prometheus::Gauge* grad_norm = nullptr;
    prometheus::Counter* data_wait = nullptr;
    prometheus::Gauge* checkpoint_step = nullptr;  // … and a checkpoint …
    prometheus::Gauge* checkpoint_seconds = nullptr;
    prometheus::Gauge* mfu = nullptr;        // … and the device's peak is known
    prometheus::Gauge* eval_loss = nullptr;  // … and was evaluated
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
  std::atomic<int32_t> gpus_used_{0};
  std::map<RankKey, RankGauges> ranks_;
  std::map<JobId, prometheus::Gauge*> oldest_;
  std::atomic<bool> is_registered_{false};
  std::atomic<bool> has_ranks_{false};
  std::atomic<int64_t> last_heartbeat_ns_{0};  // to_ns(); 0 before the first
};

}  // namespace muster::worker
