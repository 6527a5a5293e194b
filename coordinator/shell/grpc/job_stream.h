// One WatchJob call: sends the job now and after each change, until the job has ended. A slow
// reader receives only the newest change and skips earlier ones.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "coordinator/shell/grpc/callers.h"
#include "coordinator/shell/grpc/stream_limit.h"
#include "coordinator/shell/loop/core_loop.h"
#include "coordinator/shell/metrics/shell_metrics.h"
#include "muster/v1/muster.grpc.pb.h"

namespace muster::coordinator {

// The stream owns itself from begin() until gRPC calls OnDone().
class JobStream final : public grpc::ServerWriteReactor<v1::Job>,
                        public JobWatcher,
                        public RevocableStream,
                        public std::enable_shared_from_this<JobStream> {
 public:
  JobStream(grpc::CallbackServerContext& context, StreamTicket ticket,
            std::shared_ptr<ShellMetrics> metrics)
      : ticket_(std::move(ticket)), count_(std::move(metrics), "WatchJob"), context_(&context) {}

  // Ends at once with `admission` unless it is OK.
  void begin(CoreLoop& loop, JobId job, const absl::Status& admission);

  void on_job(const Core& core, const Job& job, Instant now) override;
  void on_end(const absl::Status& status) override;

  void revoke(const absl::Status& status) override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void end_locked(const absl::Status& status);
  void pump_locked();

  const StreamTicket ticket_;
  const StreamCount count_;
  std::shared_ptr<JobStream> self_;
  std::mutex mutex_;
  grpc::CallbackServerContext* context_;  // null: the call has ended
  v1::Job written_;                       // the message that gRPC writes while writing_ is true
  std::optional<v1::Job> newest_;         // the next message to write
  bool writing_ = false;
  bool ending_ = false;
  bool finished_ = false;
  absl::Status status_;
};

}  // namespace muster::coordinator
