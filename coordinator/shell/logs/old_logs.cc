#include "coordinator/shell/logs/old_logs.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>

#include <absl/strings/str_cat.h>
#include <spdlog/spdlog.h>

#include "common/files/file_write.h"
#include "common/text/canonical_number.h"

namespace muster::coordinator {
namespace {

namespace fs = std::filesystem;

struct AttemptLogs {
  uint64_t bytes = 0;
  fs::file_time_type newest = fs::file_time_type::min();
};

std::string marker_of(const std::string& root) { return absl::StrCat(root, "/removed"); }

AttemptLogs logs_of(const fs::path& folder) {
  AttemptLogs logs;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    const uint64_t bytes = entry->file_size(ignored);
    if (!ignored) logs.bytes += bytes;
    const auto time = entry->last_write_time(ignored);
    if (!ignored) logs.newest = std::max(logs.newest, time);
  }
  return logs;
}

}  // namespace

Attempt removed_logs(const std::string& root) {
  std::ifstream file(marker_of(root));
  uint32_t attempt = 0;
  file >> attempt;
  return Attempt(file ? attempt : 0);
}

void remove_old_logs(const std::string& root, Attempt last, const LogLimits& limits) {
  std::map<uint32_t, AttemptLogs> attempts;
  uint64_t bytes = 0;
  std::error_code error;
  fs::directory_iterator entry(root, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const auto number = canonical_number<uint32_t>(entry->path().filename().string());
    if (!number || *number > last.value()) continue;
    bytes += (attempts[*number] = logs_of(entry->path())).bytes;
  }
  const auto oldest = fs::file_time_type::clock::now() - limits.age_max;
  for (const auto& [number, logs] : attempts) {
    if (logs.newest >= oldest && bytes <= limits.bytes_per_job_max) continue;
    // The note comes first: a reader must not take removed logs for an attempt without output.
    const Attempt noted = std::max(removed_logs(root), Attempt(number));
    if (!write_file_atomically(marker_of(root), absl::StrCat(noted.value(), "\n")).ok()) return;
    std::error_code ignored;
    fs::remove_all(absl::StrCat(root, "/", number), ignored);
    bytes -= logs.bytes;
    spdlog::info("removed the logs of an old attempt: {}/{}, {} bytes", root, number, logs.bytes);
  }
}

}  // namespace muster::coordinator
