// Reports the steps of a training and their times: rank 0 prints lines and writes metrics, and each
// rank writes its progress page. Also starts and stops the recording of a profiler.
#pragma once

#include <optional>

#include <absl/status/status.h>

#include "common/time/time.h"
#include "trainer_core/loop/plan_comparison.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/rank/train_context.h"
#include "trainer_core/report/metrics_log.h"
#include "trainer_core/report/profile_window.h"
#include "trainer_core/report/run_figures.h"
#include "trainer_core/startup/measured_peak.h"

namespace muster::trainer {

// The reports of a rank. Called on the thread of the training loop only. All references must
// outlive this object.
class StepReport {
 public:
  StepReport(const TrainConfig& config, const TrainContext& context)
      : config_(config),
        context_(context),
        figures_(config, context.groups.mesh().ranks()),
        comparison_(config),
        profile_(config.profile, context.backend.get(), context.groups.rank(), context.out) {}

  // Opens the outputs that the config enables. An error contains the path.
  absl::Status open();
  MetricsLog& metrics() { return metrics_; }

  // Prints the memory and the figures of the training. Uses the peak throughput of the device if an
  // earlier run has measured it. Called before the first step.
  void begin(const RankModel& rank_model);
  // Prints sentences, each on a line.
  void print(const std::vector<std::string>& sentences);
  // Prints that the training is already complete, or that it was ended by early stopping.
  void nothing_to_do(int64_t completed, bool ends_early);

  // Begins a step, which may start the recording of the profiler.
  void begin_step() { profile_.begin_step(); }
  // Excludes the time until now from the next step. `stall` is the part of this time in which
  // training waited for a checkpoint; the next step reports it.
  void restart_clock(Duration stall = {});
  // Sets the times of a step. `stall` is the part of the step in which it waited for a checkpoint.
  void finish(StepRecord& record, Duration stall);
  // Writes a step to the log, the progress page and the metrics.
  void publish(const StepRecord& record);
  // Prints the end of the training after `completed` steps. `data_ends` states that the data has
  // ended before the last step of the config.
  void end(int64_t completed, bool data_ends);
  // Measures the peak throughput of the device unless an earlier call or run has measured it.
  // Called between steps, on all ranks. The time is excluded from the next step.
  void measure_peak(RankModel& rank_model);
  // Prints that the training was stopped by a request.
  void stop(int64_t completed);

 private:
  void set_measured_peak(double tflops);
  void print_summary();
  bool leader() const { return context_.groups.rank() == 0; }

  const TrainConfig& config_;
  const TrainContext& context_;
  MetricsLog metrics_;
  RunFigures figures_;
  PlanComparison comparison_;
  size_t planned_bytes_ = 0;          // set by begin()
  std::optional<MeasuredPeak> peak_;  // set by begin()
  bool peak_measured_ = false;
  ProfileWindow profile_;
  Instant last_step_end_ = monotonic_now();
  Duration stall_between_steps_{};
  DataWait data_wait_;  // sums over all steps of this process
};

}  // namespace muster::trainer
