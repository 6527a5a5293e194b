// The outputs for the metrics of a run's steps and evaluations: `metrics_file`, event files for
// TensorBoard, both or neither.
#pragma once

#include <memory>

#include <absl/status/status.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/report/event_file.h"
#include "trainer_core/report/metrics_file.h"
#include "trainer_core/report/remote_events.h"
#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// Not thread-safe: called on one thread only.
class MetricsLog {
 public:
  // Opens the outputs that the config enables. The error names the file.
  absl::Status open(const TrainConfig& config);

  void write(const StepRecord& record);
  void write(const EvalRecord& record);

 private:
  std::unique_ptr<MetricsFile> file_;     // null: disabled
  std::unique_ptr<RemoteEvents> remote_;  // null: no events, or in a folder
  std::unique_ptr<EventFile> events_;     // null: disabled
};

}  // namespace muster::trainer
