#include "trainer_core/report/metrics_log.h"

#include <utility>

#include "common/objects/object_url.h"
#include "common/time/time.h"

namespace muster::trainer {

absl::Status MetricsLog::open(const TrainConfig& config) {
  if (!config.metrics_file.empty()) {
    auto file = MetricsFile::open(config.metrics_file, config.run_name);
    if (!file.ok()) return file.status();
    file_ = *std::move(file);
  }
  if (config.tensorboard_dir.empty()) return absl::OkStatus();
  std::string folder = config.tensorboard_dir;
  if (is_object_url(folder)) {
    remote_ = std::make_unique<RemoteEvents>(folder);
    folder = remote_->folder();
  }
  auto events = EventFile::open(folder, wall_clock_unix_ns());
  if (!events.ok()) return events.status();
  events_ = *std::move(events);
  return absl::OkStatus();
}

void MetricsLog::write(const StepRecord& record) {
  if (file_ != nullptr) file_->write(record);
  if (events_ != nullptr) events_->write(record.step, wall_clock_unix_ns(), scalars_of(record));
}

void MetricsLog::write(const EvalRecord& record) {
  if (file_ != nullptr) file_->write(record);
  if (events_ != nullptr) events_->write(record.step, wall_clock_unix_ns(), scalars_of(record));
}

}  // namespace muster::trainer
