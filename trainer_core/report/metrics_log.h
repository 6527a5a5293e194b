// Where the figures of a run's steps and evaluations are written to: `metrics_file`, event files for TensorBoard, both or neither.
#pragma once

#include <memory>

#include <absl/status/status.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/report/event_file.h"
#include "trainer_core/report/metrics_file.h"
#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// One thread.
class MetricsLog {
 public:
  // Opens what the config wants. The error names the file.
  absl::Status open(const TrainConfig& config);

  void write(const StepRecord& record);
  void write(const EvalRecord& record);

 private:
  std::unique_ptr<MetricsFile> file_;  // null: not wanted
  std::unique_ptr<EventFile> events_;  // null: not wanted
};

}  // namespace muster::trainer
