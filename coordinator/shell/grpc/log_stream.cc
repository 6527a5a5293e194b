#include "coordinator/shell/grpc/log_stream.h"

#include <utility>

#include "coordinator/shell/grpc/grpc_status.h"

namespace muster::coordinator {

void LogStream::begin(const absl::StatusOr<Caller>& caller, const absl::Status& admission) {
  self_ = shared_from_this();
  // Locks the stream before it follows the logs, so that later scope updates do not overtake the
  // scope that is read here.
  const std::lock_guard lock(mutex_);
  if (!admission.ok()) return finish_locked(admission);
  if (!caller.ok()) return finish_locked(caller.status());
  if (ticket_ == nullptr) return finish_locked(StreamLimit::refusal());
  const JobId job(cursor_.request().job_id());
  const auto scope =
      cursor_.request().follow() ? logs_.follow(job, weak_from_this()) : logs_.scope(job);
  if (scope) {
    const absl::Status access = check_access(*caller, scope->owner, job, "read its output");
    if (!access.ok()) return finish_locked(access);
  }
  if (const absl::Status status = cursor_.begin(scope); !status.ok()) return finish_locked(status);
  pump_locked();
}

void LogStream::on_output(Attempt attempt, Rank rank) {
  const std::lock_guard lock(mutex_);
  cursor_.on_output(attempt, rank);
  pump_locked();
}

void LogStream::on_scope(const LogScope& scope) {
  const std::lock_guard lock(mutex_);
  cursor_.on_scope(scope);
  pump_locked();
}

void LogStream::pump_locked() {
  if (writing_ || finished_) return;
  auto chunk = cursor_.next();
  if (!chunk.ok()) return finish_locked(chunk.status());
  if (*chunk) {
    chunk_ = **std::move(chunk);
    writing_ = true;
    StartWrite(&chunk_);
  } else if (!cursor_.more_may_come()) {
    finish_locked(absl::OkStatus());
  }
}

void LogStream::finish_locked(const absl::Status& status) {
  if (std::exchange(finished_, true)) return;
  count_.count_end(status);
  audit_.finish(status);
  Finish(to_grpc(status));
}

// Does not wait for the lock, because it is held while a file is read. A caller that does not read
// never completes its write.
void LogStream::revoke(const absl::Status& status) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || context_ == nullptr) return;
  revoked_ = status;
  if (writing_) return context_->TryCancel();
  finish_locked(status);
}

void LogStream::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  if (!revoked_.ok()) return finish_locked(revoked_);
  if (!ok) return finish_locked(absl::CancelledError("the caller is gone"));
  pump_locked();
}

void LogStream::OnCancel() {
  const std::lock_guard lock(mutex_);
  finish_locked(absl::CancelledError("the caller is gone"));
}

void LogStream::OnDone() {
  {
    const std::lock_guard lock(mutex_);
    context_ = nullptr;
  }
  self_.reset();
}

}  // namespace muster::coordinator
