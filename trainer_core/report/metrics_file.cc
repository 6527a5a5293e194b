#include "trainer_core/report/metrics_file.h"

#include <filesystem>
#include <string_view>
#include <system_error>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace muster::trainer {
namespace {

// Returns false for a row whose end is missing. Accepts text that is not a row: it is not ours.
bool is_whole_row(std::string_view line) {
  return !line.starts_with('{') || nlohmann::json::accept(line);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::open(const std::string& path,
                                                               std::string run_name) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  auto file = AppendFile::open(path);
  absl::Status status = file.status();
  if (status.ok()) status = (*file)->end_last_line(is_whole_row);
  if (!status.ok())
    return absl::Status(status.code(), absl::StrCat("metrics_file: ", status.message()));
  return absl::WrapUnique(new MetricsFile(*std::move(file), std::move(run_name)));
}

void MetricsFile::write_line(const std::string& line) { file_->append(line + '\n').IgnoreError(); }

}  // namespace muster::trainer
