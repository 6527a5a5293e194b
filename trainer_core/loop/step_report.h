// Reports the steps of a training and their times: rank 0's lines and metrics file, and each rank's
// progress page. Also selects the steps that a profiler records.
#pragma once

#include <optional>

#include <absl/status/status.h>

#include "common/time.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/rank/train_context.h"
#include "trainer_core/report/metrics_log.h"
#include "trainer_core/report/profile_window.h"
#include "trainer_core/report/run_figures.h"
#include "trainer_core/startup/measured_peak.h"

namespace muster::trainer {

// Called on the training loop's thread only. All references outlive it.
class StepReport {
 public:
  StepReport(const TrainConfig& config, const TrainContext& context)
      : config_(config),
        context_(context),
        figures_(config, context.groups.mesh().ranks()),
        profile_(config.profile, context.backend.get(), context.groups.rank(), context.out) {}

  // Opens the outputs that the config enables. The error names the file.
  absl::Status open();
  MetricsLog& metrics() { return metrics_; }

  // Prints the memory and the figures of the training before it begins. Uses the peak of the device
  // that earlier runs have measured.
  void begin(const RankModel& rank_model);
  // Prints that there is no step to do.
  void nothing_to_do(int64_t completed);

  void begin_step() { profile_.begin_step(); }
  // Excludes the time until now from the next step. `stall` is the part in which the training
  // waited for a checkpoint; the next step reports it.
  void restart_clock(Duration stall = {});
  // Completes the step's times. `stall`: the part of the step in which it waited for a checkpoint.
  void finish(StepRecord& record, Duration stall);
  void publish(const StepRecord& record);
  // Prints the end of the training after `completed` steps.
  void end(int64_t completed, bool data_ends);
  // Measures the device's peak throughput, unless an earlier run has. Called between steps, on all
  // ranks. The time does not count.
  void measure_peak(RankModel& rank_model);
  // Prints that the training stopped on request.
  void stop(int64_t completed);

 private:
  void set_measured_peak(double tflops);
  void print_summary();
  bool leader() const { return context_.groups.rank() == 0; }

  const TrainConfig& config_;
  const TrainContext& context_;
  MetricsLog metrics_;
  RunFigures figures_;
  std::optional<MeasuredPeak> peak_;  // since begin()
  ProfileWindow profile_;
  Instant last_step_end_ = monotonic_now();
  Duration stall_between_steps_{};
  DataWait data_wait_;  // of all steps of this process
};

}  // namespace muster::trainer
