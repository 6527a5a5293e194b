// `metrics_file`: one JSON object per line and one line per step. Lines are appended, so that a
// resumed run continues the same file.
#pragma once

#include <fstream>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// Not thread-safe: called on one thread only.
class MetricsFile {
 public:
  // Creates the file's folder if it does not exist. The error names the file.
  static absl::StatusOr<std::unique_ptr<MetricsFile>> open(const std::string& path,
                                                           std::string run_name);

  // Writes and flushes, so that a reader sees whole lines. A write that fails (disk full) loses the
  // line; training continues.
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
