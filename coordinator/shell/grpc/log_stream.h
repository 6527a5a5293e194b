// One FollowLogs call: sends chunks of the selected ranks' logs, older attempts first, and within
// an attempt in the order of arrival. Waits without a thread until the log store reports more
// output.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "coordinator/shell/grpc/stream_limit.h"
#include "coordinator/shell/logs/log_store.h"
#include "coordinator/shell/metrics/shell_metrics.h"
#include "muster/v1/muster.grpc.pb.h"

namespace muster::coordinator {

// The stream owns itself from begin() until gRPC calls OnDone(). Requires that `logs` outlives the
// stream.
class LogStream final : public grpc::ServerWriteReactor<v1::LogChunk>,
                        public LogFollower,
                        public std::enable_shared_from_this<LogStream> {
 public:
  LogStream(LogStore& logs, v1::FollowLogsRequest request, StreamTicket ticket,
            std::shared_ptr<ShellMetrics> metrics)
      : logs_(logs),
        request_(std::move(request)),
        ticket_(std::move(ticket)),
        count_(std::move(metrics), "FollowLogs") {}

  // Ends at once with `admission` unless it is OK.
  void begin(const absl::Status& admission);

  void on_output(Attempt attempt, Rank rank) override;
  void on_scope(const LogScope& scope) override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

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

  absl::Status check_request(const std::optional<LogScope>& scope) const;
  void select_locked(const LogScope& scope);
  bool more_may_come_locked() const;
  void pump_locked();
  void queue_pending_locked();
  size_t bytes_until_next_locked(const PendingPart& pending) const;
  void finish_locked(const absl::Status& status);

  LogStore& logs_;
  const v1::FollowLogsRequest request_;
  const StreamTicket ticket_;
  const StreamCount count_;
  std::shared_ptr<LogStream> self_;

  std::mutex mutex_;
  LogScope scope_;
  Attempt selected_through_{0};  // the newest attempt whose parts were added to ready_
  std::set<Part> ready_;         // parts that may have unread bytes
  // parts with unread bytes, which wait for earlier output of other parts
  std::set<PendingPart> pending_;
  std::map<Part, uint64_t> offsets_;
  v1::LogChunk chunk_;
  bool writing_ = false;
  bool finished_ = false;
};

}  // namespace muster::coordinator
