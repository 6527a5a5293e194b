// What is said of the steps of a training, and of how long they take: rank 0's lines and metrics file, each rank's progress page; and
// which of them a profiler records.
#pragma once

#include <absl/status/status.h>

#include "common/time.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/rank/train_context.h"
#include "trainer_core/report/metrics_log.h"
#include "trainer_core/report/profile_window.h"

namespace muster::trainer {

// One thread, the training loop's. What it is given outlives it.
class StepReport {
 public:
  StepReport(const TrainConfig& config, const TrainContext& context)
      : config_(config),
        context_(context),
        profile_(config.profile, context.backend.get(), context.groups.rank(), context.out) {}

  // Opens what the config wants written; its error.
  absl::Status open();
  MetricsLog& metrics() { return metrics_; }

  // What the training takes, before it begins; or why it does not.
  void begin(const RankModel& rank_model);
  void nothing_to_do(int64_t completed);

  void begin_step() { profile_.begin_step(); }
  // What was done until now is no step's, but for `stall` of it, which the next one says: the training waited for a checkpoint.
  void restart_clock(Duration stall = {});
  // The step is completed; `stall` as above, in the step.
  void finish(StepRecord& record, Duration stall);
  // `last`: no step comes after it.
  void publish(const StepRecord& record, bool last);
  // The training is over after `completed` steps.
  void end(int64_t completed, bool data_ends);
  // Somebody has asked for that.
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
