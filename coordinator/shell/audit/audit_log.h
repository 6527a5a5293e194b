// The audit log: the requests and their callers, in a file of JSON lines that only grows.
//
// It has a line for each request that changes something or reads the coordinator's state, whatever
// its result, and for each request that was refused because of its token or of a job's owner.
// Other reads have none. A file of the maximum size is renamed to FILE.1, and the oldest of the
// renamed files is removed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/files/append_file.h"
#include "common/time/time.h"
#include "coordinator/shell/metrics/shell_metrics.h"
#include "daemon/trust_files.h"
#include "daemon/work_pool.h"

namespace muster::coordinator {

struct AuditEntry {
  std::string method{};  // "CancelJob"
  std::string target{};  // "job 7"; empty: the coordinator
  std::string caller{};  // the person whose token it is; empty: the token names none
  std::string role{};    // "submitter"; empty: none was found
  // The first digits of the token's SHA-256, by which its line in --token-dir can be found.
  std::string token{};
  std::string peer{};  // the address of the caller; empty: not known
  absl::Status status{};
};

struct AuditLogOptions {
  std::string path{};
  uint64_t bytes_max = uint64_t{64} << 20;  // the maximum size of a file
  int files = 8;                            // including the current one
};

// Thread-safe. A thread of its own writes, so that a slow disk delays no request. Lines that cannot
// be written are counted in muster_coordinator_audit_lost_total, and in the next line that can be.
class AuditLog {
 public:
  AuditLog(AuditLogOptions options, std::shared_ptr<ShellMetrics> metrics)
      : options_(std::move(options)), metrics_(std::move(metrics)) {}
  // Writes what was added.
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // Opens or creates the file, for the user of the process only. Call it once, before add(). Errors
  // name the file.
  absl::Status open();

  void add(AuditEntry entry);
  // The same for a request without a known token. Strangers must not be able to displace older
  // lines, so only ten of these are written per second; the others are counted.
  void add_stranger(AuditEntry entry);

 private:
  absl::Status open_file();
  void write(const std::string& line);
  absl::Status append(const std::string& line);
  void rotate();

  const AuditLogOptions options_;
  const std::shared_ptr<ShellMetrics> metrics_;

  std::mutex mutex_;
  Instant second_{};   // the begin of the current second of strangers
  int strangers_ = 0;  // written in this second
  uint64_t strangers_skipped_ = 0;
  uint64_t dropped_ = 0;  // because the thread was too late

  // Used by the thread of the pool.
  std::unique_ptr<AppendFile> file_;  // null: the file could not be opened again
  uint64_t bytes_ = 0;
  bool is_failing_ = false;

  daemon::WorkPool writer_{1, 4'096};
};

// The line of one request, which is written when the request has ended. Copies are of the same
// request; one of them is finished.
class Audit {
 public:
  Audit() = default;  // a request that has no line
  // `is_change`: whether the request has a line although it is not refused.
  Audit(std::shared_ptr<AuditLog> log, AuditEntry entry, bool is_change)
      : log_(std::move(log)), entry_(std::move(entry)), is_change_(is_change) {}

  // `target`: replaces that of the entry unless it is empty.
  void finish(const absl::Status& status, std::string target = {}) const;

 private:
  std::shared_ptr<AuditLog> log_;  // null: there is no line
  AuditEntry entry_;
  bool is_change_ = false;
};

// Returns the text of AuditEntry::token.
std::string audit_token(const daemon::TokenDigest& digest);

}  // namespace muster::coordinator
