// One FollowLogs call: sends chunks of the selected ranks' logs in the order of LogCursor. Waits
// without a thread until the log store reports more output.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "coordinator/shell/grpc/callers.h"
#include "coordinator/shell/grpc/stream_limit.h"
#include "coordinator/shell/logs/log_cursor.h"
#include "coordinator/shell/metrics/shell_metrics.h"
#include "muster/v1/muster.grpc.pb.h"

namespace muster::coordinator {

// The stream owns itself from begin() until gRPC calls OnDone(). Requires that `logs` outlives the
// stream.
class LogStream final : public grpc::ServerWriteReactor<v1::LogChunk>,
                        public LogFollower,
                        public RevocableStream,
                        public std::enable_shared_from_this<LogStream> {
 public:
  LogStream(grpc::CallbackServerContext& context, LogStore& logs, v1::FollowLogsRequest request,
            StreamTicket ticket, std::shared_ptr<ShellMetrics> metrics, Audit audit)
      : logs_(logs),
        ticket_(std::move(ticket)),
        count_(std::move(metrics), "FollowLogs"),
        audit_(std::move(audit)),
        context_(&context),
        cursor_(logs, std::move(request)) {}

  // Ends at once with `admission` unless it is OK, and with PermissionDenied unless the job belongs
  // to the caller.
  void begin(const absl::StatusOr<Caller>& caller, const absl::Status& admission);

  void on_output(Attempt attempt, Rank rank) override;
  void on_scope(const LogScope& scope) override;

  void revoke(const absl::Status& status) override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void pump_locked();
  void finish_locked(const absl::Status& status);

  LogStore& logs_;
  const StreamTicket ticket_;
  const StreamCount count_;
  const Audit audit_;
  std::shared_ptr<LogStream> self_;

  std::mutex mutex_;
  grpc::CallbackServerContext* context_;  // null: the call has ended
  LogCursor cursor_;
  v1::LogChunk chunk_;
  absl::Status revoked_;  // OK: the caller may read the logs
  bool writing_ = false;
  bool finished_ = false;
};

}  // namespace muster::coordinator
