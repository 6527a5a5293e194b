// The file of the key `metrics_file`: one JSON object per line, and one line per step or
// evaluation. Lines are appended, so that a resumed run continues the same file.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <absl/status/statusor.h>

#include "common/files/append_file.h"
#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// An open metrics file. Called on one thread only.
class MetricsFile {
 public:
  // Opens the file, and creates its folder if needed. Removes the incomplete last line of a run
  // that was killed while it wrote the line. An error contains the path.
  static absl::StatusOr<std::unique_ptr<MetricsFile>> open(const std::string& path,
                                                           std::string run_name);

  // Write a whole line at once, so that readers see complete lines. If the write fails, for
  // instance because the disk is full, the line is lost and training continues.
  void write(const StepRecord& record) { write_line(metrics_line(record, run_name_)); }
  void write(const EvalRecord& record) { write_line(metrics_line(record, run_name_)); }

 private:
  MetricsFile(std::unique_ptr<AppendFile> file, std::string run_name)
      : file_(std::move(file)), run_name_(std::move(run_name)) {}

  void write_line(const std::string& line);

  std::unique_ptr<AppendFile> file_;
  std::string run_name_;
};

}  // namespace muster::trainer
