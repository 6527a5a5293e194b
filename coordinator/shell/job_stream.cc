#include "coordinator/shell/job_stream.h"

#include "coordinator/shell/convert.h"
#include "coordinator/shell/grpc_status.h"

namespace muster::coordinator {
namespace {

// Changes that wait for a slow reader; beyond it the oldest is dropped, because only the newest is true.
constexpr size_t kChangesMax = 64;

}  // namespace

void JobStream::begin(CoreLoop& loop, JobId job) {
  self_ = shared_from_this();
  if (const absl::Status status = loop.watch(job, shared_from_this()); !status.ok()) on_end(status);
}

void JobStream::on_job(const Job& job, Instant now) {
  v1::Job proto = job_to_proto(job, now);
  const std::lock_guard lock(mutex_);
  if (ending_) return;
  if (waiting_.size() >= kChangesMax) waiting_.erase(waiting_.begin() + 1);
  waiting_.push_back(std::move(proto));
  if (is_terminal(job.state)) ending_ = true;
  pump_locked();
}

void JobStream::on_end(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  end_locked(status);
}

void JobStream::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  waiting_.pop_front();
  if (!ok) {
    waiting_.clear();
    end_locked(absl::CancelledError("the caller is gone"));
  }
  pump_locked();
}

void JobStream::OnCancel() {
  const std::lock_guard lock(mutex_);
  if (!writing_) waiting_.clear();
  end_locked(absl::CancelledError("the caller is gone"));
}

void JobStream::OnDone() { self_.reset(); }

void JobStream::end_locked(const absl::Status& status) {
  if (!ending_) status_ = status;
  ending_ = true;
  pump_locked();
}

void JobStream::pump_locked() {
  if (writing_ || finished_) return;
  if (!waiting_.empty()) {
    writing_ = true;
    StartWrite(&waiting_.front());
  } else if (ending_) {
    finished_ = true;
    Finish(to_grpc(status_));
  }
}

}  // namespace muster::coordinator
