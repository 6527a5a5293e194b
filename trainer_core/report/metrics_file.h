// `metrics_file`: one JSON object a line, one line a step, appended, so that a resumed run goes on in the same file.
#pragma once

#include <fstream>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// One thread.
class MetricsFile {
 public:
  // Makes the file's folder, too. The error names the file.
  static absl::StatusOr<std::unique_ptr<MetricsFile>> open(const std::string& path,
                                                           std::string run_name);

  // Flushed, so that a reader sees whole lines. A write that fails (disk full) costs the line, not the training.
  void write(const StepRecord& record) { write_line(metrics_line(record, run_name_)); }
  void write(const EvalRecord& record) { write_line(metrics_line(record, run_name_)); }

 private:
  MetricsFile(std::ofstream file, std::string run_name)
      : file_(std::move(file)), run_name_(std::move(run_name)) {}

  void write_line(const std::string& line);

  std::ofstream file_;
  std::string run_name_;
};

}  // namespace muster::trainer
