// Writes the metrics of the steps and evaluations of a run to the outputs that its config enables:
// `metrics_file`, event files for TensorBoard, both or none.
#pragma once

#include <memory>

#include <absl/status/status.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/report/event_file.h"
#include "trainer_core/report/metrics_file.h"
#include "trainer_core/report/remote_events.h"
#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// The enabled outputs. Called on one thread only.
class MetricsLog {
 public:
  // Opens the outputs. An error contains the path.
  absl::Status open(const TrainConfig& config);

  // Write a record to all enabled outputs.
  void write(const StepRecord& record);
  void write(const EvalRecord& record);

 private:
  std::unique_ptr<MetricsFile> file_;     // null: disabled
  std::unique_ptr<RemoteEvents> remote_;  // null: no events, or in a folder
  std::unique_ptr<EventFile> events_;     // null: disabled
};

}  // namespace muster::trainer
