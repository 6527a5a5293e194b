#include "coordinator/shell/audit/audit_log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <future>
#include <utility>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <spdlog/spdlog.h>

#include "common/files/errno_status.h"
#include "common/text/escape.h"

namespace muster::coordinator {
namespace {

constexpr int kFailuresPerSecond = 10;
// Bounds the callers that are counted one by one.
constexpr size_t kFailingMax = 1'000;
constexpr size_t kAuditTextBytesMax = 1'024;

nlohmann::ordered_json line_of(const AuditEntry& entry, int64_t unix_ns) {
  const auto text = [](const std::string& value) { return printable(value, kAuditTextBytesMax); };
  const absl::Time time = absl::FromUnixNanos(unix_ns);
  nlohmann::ordered_json line = {
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone())},
      {"method", text(entry.method)},
      {"target", text(entry.target)},
      {"caller", text(entry.caller)},
      {"role", entry.role},
      {"token", entry.token},
      {"peer", text(entry.peer)},
      {"code", absl::StatusCodeToString(entry.status.code())}};
  if (!entry.status.ok()) line["message"] = text(std::string(entry.status.message()));
  return line;
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
  const std::string& path = options_.path;
  // Before the file is opened: a pipe without a reader would block.
  if (stat(path.c_str(), &opened_) == 0 && !S_ISREG(opened_.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path, " is no plain file"));
  auto file = AppendFile::open(path);
  if (!file.ok()) return file.status();
  if (chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0)
    return errno_status(errno, absl::StrCat("setting the permissions of ", path));
  absl::Status status =
      (*file)->end_last_line([](std::string_view line) { return nlohmann::json::accept(line); });
  if (!status.ok()) return status;
  if (stat(path.c_str(), &opened_) != 0) return errno_status(errno, absl::StrCat("reading ", path));
  bytes_ = static_cast<uint64_t>(opened_.st_size);
  file_ = *std::move(file);
  return absl::OkStatus();
}

bool AuditLog::is_skipped_locked(const AuditEntry& entry) {
  if (entry.status.ok()) return false;
  const Instant now = monotonic_now();
  const auto is_over = [&](const auto& one) {
    return now - one.second.begun >= std::chrono::seconds(1);
  };
  if (failures_.size() >= kFailingMax) std::erase_if(failures_, is_over);
  // A person may have any number of tokens.
  std::string who = entry.caller.empty() ? entry.token : entry.caller;
  if (entry.role.empty() || failures_.size() >= kFailingMax) who.clear();
  Failures& failures = failures_[who];
  if (now - failures.begun >= std::chrono::seconds(1)) failures = {.begun = now};
  return ++failures.count > kFailuresPerSecond;
}

void AuditLog::add(const AuditEntry& entry) {
  {
    const std::lock_guard lock(mutex_);
    if (is_skipped_locked(entry)) {
      ++skipped_;
      return;
    }
  }
  auto task = [this, line = line_of(entry, wall_clock_unix_ns())]() mutable {
    write(std::move(line));
  };
  if (writer_.post(std::move(task))) return;
  metrics_->count_lost_audit();
  const std::lock_guard lock(mutex_);
  ++lost_;
}

void AuditLog::write(nlohmann::ordered_json line) {
  uint64_t skipped = 0;
  uint64_t lost = 0;
  {
    const std::lock_guard lock(mutex_);
    skipped = skipped_;
    lost = lost_;
  }
  if (skipped > 0) line["failed_before"] = skipped;
  if (lost > 0) line["lost_before"] = lost;
  const absl::Status status =
      append(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  {
    const std::lock_guard lock(mutex_);
    if (status.ok()) {
      skipped_ -= skipped;
      lost_ -= lost;
    } else {
      ++lost_;
    }
  }
  const bool was_failing = std::exchange(is_failing_, !status.ok());
  if (status.ok()) return;
  metrics_->count_lost_audit();
  if (!was_failing)
    spdlog::error("requests are missing in the audit log until it can be written: {}",
                  std::string(status.message()));
}

absl::Status AuditLog::append(const std::string& line) {
  struct stat now {};
  // Another program may have removed or renamed the file.
  const bool is_same = file_ != nullptr && stat(options_.path.c_str(), &now) == 0 &&
                       now.st_ino == opened_.st_ino && now.st_dev == opened_.st_dev;
  if (is_same && bytes_ > 0 && bytes_ + line.size() > options_.bytes_max) {
    if (const absl::Status status = rotate(); status.ok()) {
      file_.reset();
    } else {
      bytes_ = 0;  // the file grows, and the next attempt is after as many bytes
      spdlog::warn("the audit log is not renamed: {}", std::string(status.message()));
    }
  } else if (!is_same) {
    file_.reset();
  }
  if (file_ == nullptr)
    if (absl::Status status = open_file(); !status.ok()) return status;
  if (absl::Status status = file_->append(line); !status.ok()) return status;
  bytes_ += line.size();
  return absl::OkStatus();
}

absl::Status AuditLog::rotate() {
  for (int number = options_.files - 1; number > 0; --number) {
    const std::string from =
        number == 1 ? options_.path : absl::StrCat(options_.path, ".", number - 1);
    const std::string to = absl::StrCat(options_.path, ".", number);
    if (rename(from.c_str(), to.c_str()) != 0 && errno != ENOENT)
      return errno_status(errno, absl::StrCat("renaming ", from, " to ", to));
  }
  return absl::OkStatus();
}

void Audit::finish(const absl::Status& status, std::string target) const {
  const bool is_refused = absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status);
  if (log_ == nullptr || (!is_change_ && !is_refused)) return;
  AuditEntry entry = entry_;
  entry.status = status;
  if (!target.empty()) entry.target = std::move(target);
  log_->add(entry);
}

std::string audit_token(const daemon::TokenDigest& digest) {
  constexpr size_t kBytes = 4;
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), kBytes));
}

}  // namespace muster::coordinator
