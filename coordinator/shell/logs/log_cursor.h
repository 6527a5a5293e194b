// Reads the logs of one rank or of all ranks of a job: older attempts first, and within an attempt
// in the order of arrival. Chunks end with whole UTF-8 characters. Not thread-safe: its owner locks
// it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "coordinator/shell/logs/log_store.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

// The place at which a cursor begins instead of the request's offset.
struct LogStart {
  // at most this many bytes before the present end of each rank's log
  std::optional<uint64_t> tail_bytes = std::nullopt;
  // at this offset of this attempt, and with all of the later ones
  std::optional<std::pair<Attempt, uint64_t>> at = std::nullopt;
};

// Checks that the job exists and has the rank and the attempt. An offset needs both.
absl::Status check_log_request(const v1::FollowLogsRequest& request,
                               const std::optional<LogScope>& scope);

class LogCursor {
 public:
  // Requires that `logs` outlives the cursor.
  LogCursor(LogStore& logs, v1::FollowLogsRequest request, LogStart start = {})
      : logs_(logs), request_(std::move(request)), start_(start) {}

  const v1::FollowLogsRequest& request() const { return request_; }

  // Begins with the job's logs; nullopt: there is no such job. Returns InvalidArgument with the
  // field that does not fit them.
  absl::Status begin(const std::optional<LogScope>& scope);
  void on_output(Attempt attempt, Rank rank);
  void on_scope(const LogScope& scope);

  // Returns the next chunk; nullopt if there is none now.
  absl::StatusOr<std::optional<v1::LogChunk>> next();
  // Returns whether chunks may follow once next() has returned none.
  bool more_may_come() const;

 private:
  using Part = std::pair<Attempt, Rank>;
  // The next unread bytes of a part, ordered by arrival. `unix_ns` is 0 if a single rank is
  // followed, and for logs without times.
  struct PendingPart {
    Attempt attempt;
    int64_t unix_ns = 0;
    Rank rank;

    friend auto operator<=>(const PendingPart&, const PendingPart&) = default;
  };

  void select(Attempt first, Attempt last, bool from_begin);
  uint64_t first_offset(const Part& part) const;
  bool may_grow(Attempt attempt) const;
  void queue_pending();
  size_t bytes_until_next(const PendingPart& pending) const;

  LogStore& logs_;
  const v1::FollowLogsRequest request_;
  const LogStart start_;
  LogScope scope_;
  Attempt selected_through_{0};  // the newest attempt whose parts were added to ready_
  std::set<Part> ready_;         // parts that may have unread bytes
  std::set<Part> incomplete_;    // parts whose unread bytes are a part of a character
  // parts with unread bytes, which wait for earlier output of other parts
  std::set<PendingPart> pending_;
  std::map<Part, uint64_t> offsets_;
};

}  // namespace muster::coordinator
