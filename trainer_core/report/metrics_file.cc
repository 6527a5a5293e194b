#include "trainer_core/report/metrics_file.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"

namespace muster::trainer {

absl::StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::open(const std::string& path,
                                                               std::string run_name) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  std::ofstream file(path, std::ios::app);
  if (!file) return errno_status(errno, absl::StrCat("metrics_file ", path, " cannot be written"));
  return absl::WrapUnique(new MetricsFile(std::move(file), std::move(run_name)));
}

void MetricsFile::write_line(const std::string& line) {
  file_ << line << std::endl;
  file_.clear();
}

}  // namespace muster::trainer
