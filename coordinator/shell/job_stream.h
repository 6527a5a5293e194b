// One WatchJob call: sends the job now and after each change, until it has ended. A slow reader
// skips intermediate changes and receives only the newest.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "coordinator/shell/core_loop.h"
#include "coordinator/shell/stream_limit.h"
#include "muster/v1/muster.grpc.pb.h"

namespace muster::coordinator {

// Owns itself from begin() until gRPC calls OnDone().
class JobStream final : public grpc::ServerWriteReactor<v1::Job>,
                        public JobWatcher,
                        public std::enable_shared_from_this<JobStream> {
 public:
  explicit JobStream(StreamTicket ticket) : ticket_(std::move(ticket)) {}

  void begin(CoreLoop& loop, JobId job);

  void on_job(const Core& core, const Job& job, Instant now) override;
  void on_end(const absl::Status& status) override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void end_locked(const absl::Status& status);
  void pump_locked();

  const StreamTicket ticket_;
  std::shared_ptr<JobStream> self_;
  std::mutex mutex_;
  v1::Job written_;                // being written while writing_
  std::optional<v1::Job> newest_;  // not being written yet
  bool writing_ = false;
  bool ending_ = false;
  bool finished_ = false;
  absl::Status status_;
};

}  // namespace muster::coordinator
