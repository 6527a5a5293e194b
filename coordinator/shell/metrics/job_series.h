// Shared by job_metrics.cc and job_figures.cc: the families of jobs' metrics, and the series of one
// job.
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>

#include <absl/strings/ascii.h>

#include "common/text/absl_view.h"
#include "coordinator/core/hang/step_window.h"
#include "coordinator/shell/metrics/job_metrics.h"
#include "daemon/metric_families.h"
#include "daemon/metric_words.h"

namespace muster::coordinator {

struct JobMetrics::Families {
  explicit Families(prometheus::Registry& registry)
      : jobs(daemon::gauges<"muster_jobs">(registry)),
        without_series(daemon::gauges<"muster_jobs_without_series">(registry)),
        state(daemon::gauges<"muster_job_state">(registry)),
        started(daemon::gauges<"muster_job_start_timestamp_seconds">(registry)),
        attempt(daemon::gauges<"muster_job_attempt">(registry)),
        ranks(daemon::gauges<"muster_job_ranks">(registry)),
        step(daemon::gauges<"muster_job_step">(registry)),
        tokens(daemon::gauges<"muster_job_tokens_per_second">(registry)),
        mfu(daemon::gauges<"muster_job_mfu_ratio">(registry)),
        loss(daemon::gauges<"muster_job_loss">(registry)),
        grad_norm(daemon::gauges<"muster_job_grad_norm">(registry)),
        step_seconds(daemon::histograms<"muster_job_step_seconds">(registry)),
        step_parts(daemon::counters<"muster_job_step_part_seconds_total">(registry)),
        planned_step(daemon::gauges<"muster_job_planned_step_seconds">(registry)),
        planned_communication(daemon::gauges<"muster_job_planned_communication_seconds">(registry)),
        planned_data(daemon::gauges<"muster_job_planned_data_seconds">(registry)),
        planned_checkpoint(daemon::gauges<"muster_job_planned_checkpoint_seconds">(registry)),
        planned_memory(daemon::gauges<"muster_job_planned_memory_bytes">(registry)),
        restarts(daemon::counters<"muster_job_restarts_total">(registry)),
        checkpoint_step(daemon::gauges<"muster_job_checkpoint_step">(registry)),
        checkpoint_time(daemon::gauges<"muster_job_checkpoint_timestamp_seconds">(registry)),
        suspect(daemon::gauges<"muster_job_suspect">(registry)),
        straggler(daemon::gauges<"muster_job_straggler_score">(registry)),
        incidents(daemon::counters<"muster_job_incidents_total">(registry)),
        detection(daemon::histograms<"muster_job_detection_seconds">(registry)),
        accounted(daemon::counters<"muster_job_accounted_seconds_total">(registry)),
        productive(daemon::counters<"muster_job_productive_seconds_total">(registry)),
        lost(daemon::counters<"muster_job_lost_seconds_total">(registry)),
        goodput(daemon::gauges<"muster_job_goodput_ratio">(registry)) {}

  prometheus::Family<prometheus::Gauge>& jobs;
  prometheus::Family<prometheus::Gauge>& without_series;
  prometheus::Family<prometheus::Gauge>& state;
  prometheus::Family<prometheus::Gauge>& started;
  prometheus::Family<prometheus::Gauge>& attempt;
  prometheus::Family<prometheus::Gauge>& ranks;
  prometheus::Family<prometheus::Gauge>& step;
  prometheus::Family<prometheus::Gauge>& tokens;
  prometheus::Family<prometheus::Gauge>& mfu;
  prometheus::Family<prometheus::Gauge>& loss;
  prometheus::Family<prometheus::Gauge>& grad_norm;
  prometheus::Family<prometheus::Histogram>& step_seconds;
  prometheus::Family<prometheus::Counter>& step_parts;
  prometheus::Family<prometheus::Gauge>& planned_step;
  prometheus::Family<prometheus::Gauge>& planned_communication;
  prometheus::Family<prometheus::Gauge>& planned_data;
  prometheus::Family<prometheus::Gauge>& planned_checkpoint;
  prometheus::Family<prometheus::Gauge>& planned_memory;
  prometheus::Family<prometheus::Counter>& restarts;
  prometheus::Family<prometheus::Gauge>& checkpoint_step;
  prometheus::Family<prometheus::Gauge>& checkpoint_time;
  prometheus::Family<prometheus::Gauge>& suspect;
  prometheus::Family<prometheus::Gauge>& straggler;
  prometheus::Family<prometheus::Counter>& incidents;
  prometheus::Family<prometheus::Histogram>& detection;
  prometheus::Family<prometheus::Counter>& accounted;
  prometheus::Family<prometheus::Counter>& productive;
  prometheus::Family<prometheus::Counter>& lost;
  prometheus::Family<prometheus::Gauge>& goodput;
};

struct JobMetrics::Series {
  daemon::MetricLabels labels;
  JobState shown_state = JobState::kQueued;
  prometheus::Gauge* state = nullptr;
  prometheus::Gauge* started = nullptr;
  prometheus::Gauge* attempt = nullptr;
  prometheus::Gauge* ranks = nullptr;
  prometheus::Counter* restarts = nullptr;
  prometheus::Gauge* suspect = nullptr;
  prometheus::Histogram* detection = nullptr;  // null until the first incident
  std::map<IncidentKind, prometheus::Counter*> incidents;
  std::map<Rank, prometheus::Gauge*> stragglers;  // the slowest ranks
  prometheus::Histogram* step_seconds = nullptr;
  // Null until the job's account exists.
  prometheus::Counter* accounted = nullptr;
  prometheus::Counter* productive = nullptr;
  prometheus::Gauge* goodput = nullptr;
  struct Lost {
    prometheus::Counter* counter = nullptr;
    Instant zero_until{};
  };
  // Lost time by cause and class, created with the first loss.
  std::map<std::pair<size_t, size_t>, Lost> lost;
  bool saves = false;  // the job has reported checkpoints
  prometheus::Gauge* checkpoint_step = nullptr;
  prometheus::Gauge* checkpoint_time = nullptr;
  // Null until rank 0 has completed a step.
  prometheus::Gauge* step = nullptr;
  prometheus::Gauge* loss = nullptr;
  prometheus::Gauge* grad_norm = nullptr;
  // Null until rank 0 has completed a step in this attempt, because there is no speed between
  // attempts, and a 0 would distort every mean.
  prometheus::Gauge* tokens = nullptr;
  prometheus::Gauge* mfu = nullptr;  // also null while the device's peak is unknown
  Attempt counted_attempt{0};
  StepTimes counted;  // the steps of counted_attempt that are in step_seconds
  std::array<prometheus::Counter*, kStepPartNames.size()> parts{};
  StepPartSeconds counted_parts{};  // those of counted_attempt
  // Null if the job's plan does not have them.
  prometheus::Gauge* planned_step = nullptr;
  prometheus::Gauge* planned_communication = nullptr;
  prometheus::Gauge* planned_data = nullptr;
  prometheus::Gauge* planned_checkpoint = nullptr;
  prometheus::Gauge* planned_memory = nullptr;
};

template <class T>
void remove_from(prometheus::Family<T>& family, T* metric) {
  if (metric != nullptr) family.Remove(metric);
}

inline std::string state_label(JobState state) {
  return absl::AsciiStrToLower(av(job_state_name(state)));
}

}  // namespace muster::coordinator
