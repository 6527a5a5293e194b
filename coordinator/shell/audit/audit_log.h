// The audit log: the requests and their callers, in a file of JSON lines that only grows.
//
// It has a line for each request that changes something or reads the coordinator's state, whatever
// its result, and for each request that was refused because of its token or of a job's owner.
// Other reads have none. A file of the maximum size is renamed to FILE.1, and the oldest of the
// renamed files is removed.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <nlohmann/json.hpp>

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
  std::string role{};    // "submitter"; empty: the token is unknown, or none is needed
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

// Thread-safe. A thread of its own writes, so that a slow disk delays no request. Lines that could
// not be written are counted in muster_coordinator_audit_lost_total, and in the next line that is
// written.
class AuditLog {
 public:
  AuditLog(AuditLogOptions options, std::shared_ptr<ShellMetrics> metrics)
      : options_(std::move(options)), metrics_(std::move(metrics)) {}
  // Writes what was added. Waits as long as the disk does.
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // Opens or creates the file, for the user of the process only. Call it once, before add(). Errors
  // name the file; InvalidArgument: it is no plain file.
  absl::Status open();

  // Adds a line. Callers must not be able to displace older lines by requests that fail: of these,
  // ten per second have a line for each person or token, and ten for all others together; the
  // next line counts the others.
  void add(const AuditEntry& entry);

 private:
  // The failed requests of one token within one second.
  struct Failures {
    Instant begun{};
    int count = 0;
  };

  bool is_skipped_locked(const AuditEntry& entry);
  absl::Status open_file();
  void write(nlohmann::ordered_json line);
  absl::Status append(const std::string& line);
  absl::Status rotate();

  const AuditLogOptions options_;
  const std::shared_ptr<ShellMetrics> metrics_;

  std::mutex mutex_;
  std::map<std::string, Failures> failures_;  // by person or token; "": unknown
  uint64_t skipped_ = 0;                      // failed requests without a line
  uint64_t lost_ = 0;                         // lines that could not be written

  // Used by the thread of the pool.
  std::unique_ptr<AppendFile> file_;  // null: the file could not be opened again
  struct stat opened_ {};             // the open file
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
