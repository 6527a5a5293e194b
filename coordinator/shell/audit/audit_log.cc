#include "coordinator/shell/audit/audit_log.h"

#include <sys/stat.h>

#include <filesystem>
#include <future>
#include <system_error>
#include <utility>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "common/files/errno_status.h"
#include "common/text/escape.h"

namespace muster::coordinator {
namespace {

constexpr int kStrangersPerSecond = 10;
constexpr size_t kAuditTextBytesMax = 1'024;

std::string line_of(const AuditEntry& entry, uint64_t skipped, uint64_t dropped) {
  const auto text = [](const std::string& value) { return printable(value, kAuditTextBytesMax); };
  nlohmann::ordered_json line = {
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone())},
      {"method", text(entry.method)},
      {"target", text(entry.target)},
      {"caller", text(entry.caller)},
      {"role", entry.role},
      {"token", entry.token},
      {"peer", text(entry.peer)},
      {"code", absl::StatusCodeToString(entry.status.code())}};
  if (!entry.status.ok()) line["message"] = text(std::string(entry.status.message()));
  if (skipped > 0) line["refused_before"] = skipped;
  if (dropped > 0) line["lost_before"] = dropped;
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

absl::Status AuditLog::open() {
  const absl::Status status = open_file();
  return absl::Status(status.code(), absl::StrCat("--audit-log: ", status.message()));
}

AuditLog::~AuditLog() {
  // The tasks of the pool run in their order.
  std::promise<void> written;
  writer_.post_always([&written] { written.set_value(); });
  written.get_future().wait();
}

absl::Status AuditLog::open_file() {
  auto file = AppendFile::open(options_.path);
  if (!file.ok()) return file.status();
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(options_.path, error);
  if (is_file && chmod(options_.path.c_str(), S_IRUSR | S_IWUSR) != 0)
    return errno_status(errno, absl::StrCat("setting the permissions of ", options_.path));
  if (absl::Status status = (*file)->end_last_line(
          [](std::string_view line) { return nlohmann::json::accept(line); });
      !status.ok())
    return status;
  bytes_ = is_file ? std::filesystem::file_size(options_.path, error) : 0;
  file_ = *std::move(file);
  return absl::OkStatus();
}

void AuditLog::add(AuditEntry entry) {
  uint64_t skipped = 0;
  uint64_t dropped = 0;
  {
    const std::lock_guard lock(mutex_);
    skipped = std::exchange(strangers_skipped_, 0);
    dropped = std::exchange(dropped_, 0);
  }
  if (writer_.post([this, line = line_of(entry, skipped, dropped)] { write(line); })) return;
  metrics_->count_lost_audit();
  const std::lock_guard lock(mutex_);
  strangers_skipped_ += skipped;
  dropped_ += dropped + 1;
}

void AuditLog::add_stranger(AuditEntry entry) {
  {
    const std::lock_guard lock(mutex_);
    const Instant now = monotonic_now();
    if (now - second_ >= std::chrono::seconds(1)) {
      second_ = now;
      strangers_ = 0;
    }
    if (++strangers_ > kStrangersPerSecond) {
      ++strangers_skipped_;
      return;
    }
  }
  add(std::move(entry));
}

void AuditLog::write(const std::string& line) {
  const absl::Status status = append(line);
  if (status.ok()) {
    is_failing_ = false;
    return;
  }
  metrics_->count_lost_audit();
  const std::lock_guard lock(mutex_);
  ++dropped_;
  if (std::exchange(is_failing_, true)) return;
  spdlog::error("requests are missing in the audit log until it can be written: {}",
                std::string(status.message()));
}

absl::Status AuditLog::append(const std::string& line) {
  if (file_ != nullptr && bytes_ > 0 && bytes_ + line.size() > options_.bytes_max) rotate();
  if (file_ == nullptr)
    if (absl::Status status = open_file(); !status.ok()) return status;
  if (absl::Status status = file_->append(line); !status.ok()) return status;
  bytes_ += line.size();
  return absl::OkStatus();
}

// A failed rename leaves the file in use: it grows, and nothing is lost.
void AuditLog::rotate() {
  std::error_code error;
  for (int number = options_.files - 1; number > 0; --number) {
    const std::string from =
        number == 1 ? options_.path : absl::StrCat(options_.path, ".", number - 1);
    std::filesystem::rename(from, absl::StrCat(options_.path, ".", number), error);
  }
  if (error) {
    bytes_ = 0;  // tries again after as many bytes
    spdlog::warn("the audit log {} cannot be renamed: {}", options_.path, error.message());
    return;
  }
  file_.reset();
}

void Audit::finish(const absl::Status& status, std::string target) const {
  const bool is_refused = absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status);
  if (log_ == nullptr || (!is_change_ && !is_refused)) return;
  AuditEntry entry = entry_;
  entry.status = status;
  if (!target.empty()) entry.target = std::move(target);
  if (absl::IsUnauthenticated(status)) return log_->add_stranger(std::move(entry));
  log_->add(std::move(entry));
}

std::string audit_token(const daemon::TokenDigest& digest) {
  constexpr size_t kBytes = 4;
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), kBytes));
}

}  // namespace muster::coordinator
