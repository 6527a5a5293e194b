#include "coordinator/shell/grpc/job_stream.h"

#include <utility>

#include "coordinator/shell/grpc/grpc_status.h"
#include "coordinator/shell/messages/job_and_worker_messages.h"

namespace muster::coordinator {

void JobStream::begin(CoreLoop& loop, JobId job, const absl::Status& admission) {
  self_ = shared_from_this();
  if (!admission.ok()) return on_end(admission);
  if (ticket_ == nullptr) return on_end(StreamLimit::refusal());
  if (const absl::Status status = loop.watch(job, shared_from_this()); !status.ok()) on_end(status);
}

void JobStream::on_job(const Core& core, const Job& job, Instant now) {
  v1::Job proto = job_to_proto(core, job, now);
  const std::lock_guard lock(mutex_);
  if (ending_) return;
  newest_ = std::move(proto);
  if (is_terminal(job.state)) ending_ = true;
  pump_locked();
}

void JobStream::on_end(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  end_locked(status);
}

// A caller that does not read never completes its write.
void JobStream::revoke(const absl::Status& status) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || context_ == nullptr) return;
  newest_.reset();
  end_locked(status);
  if (writing_) context_->TryCancel();
}

void JobStream::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  if (!ok) {
    newest_.reset();
    end_locked(absl::CancelledError("the caller is gone"));
  }
  pump_locked();
}

void JobStream::OnCancel() {
  const std::lock_guard lock(mutex_);
  newest_.reset();
  end_locked(absl::CancelledError("the caller is gone"));
}

void JobStream::OnDone() {
  {
    const std::lock_guard lock(mutex_);
    context_ = nullptr;
  }
  self_.reset();
}

void JobStream::end_locked(const absl::Status& status) {
  if (!ending_) status_ = status;
  ending_ = true;
  pump_locked();
}

void JobStream::pump_locked() {
  if (writing_ || finished_) return;
  if (newest_) {
    written_ = *std::exchange(newest_, std::nullopt);
    writing_ = true;
    StartWrite(&written_);
  } else if (ending_) {
    finished_ = true;
    count_.count_end(status_);
    Finish(to_grpc(status_));
  }
}

}  // namespace muster::coordinator
