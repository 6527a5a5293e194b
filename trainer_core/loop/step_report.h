// Reports the steps of a training and their times: rank 0's lines and metrics file, and each rank's
// progress page. Also selects the steps that a profiler records.
#pragma once

#include <absl/status/status.h>

#include "common/time.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/rank/train_context.h"
#include "trainer_core/report/metrics_log.h"
#include "trainer_core/report/profile_window.h"

namespace muster::trainer {

// Called on the training loop's thread only. All references outlive it.
class StepReport {
 public:
  StepReport(const TrainConfig& config, const TrainContext& context)
      : config_(config),
        context_(context),
        profile_(config.profile, context.backend.get(), context.groups.rank(), context.out) {}

  // Opens the outputs that the config enables. The error names the file.
  absl::Status open();
  MetricsLog& metrics() { return metrics_; }

  // Prints the memory and the figures of the training before it begins.
  void begin(const RankModel& rank_model);
  // Prints that there is no step to do.
  void nothing_to_do(int64_t completed);

  void begin_step() { profile_.begin_step(); }
  // Excludes the time until now from the next step. `stall` is the part in which the training
  // waited for a checkpoint; the next step reports it.
  void restart_clock(Duration stall = {});
  // Completes the step's times. `stall`: the part of the step in which it waited for a checkpoint.
  void finish(StepRecord& record, Duration stall);
  // `last`: no step follows.
  void publish(const StepRecord& record, bool last);
  // Prints the end of the training after `completed` steps.
  void end(int64_t completed, bool data_ends);
  // Prints that the training stopped on request.
  void stop(int64_t completed);

 private:
  bool leader() const { return context_.groups.rank() == 0; }

  const TrainConfig& config_;
  const TrainContext& context_;
  MetricsLog metrics_;
  ProfileWindow profile_;
  Instant last_step_end_ = monotonic_now();
  Duration stall_between_steps_{};
  DataWait data_wait_;  // of all steps of this process
};

}  // namespace muster::trainer
