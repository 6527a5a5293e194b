#include "cli/run/shutdown_deadline.h"

#include <algorithm>

namespace muster::cli {

void ShutdownDeadline::leave(Instant now) {
  if (!leave_by_) leave_by_ = now + leave_time_;
}

void ShutdownDeadline::observe_save(const SaveProgress& save, Instant now) {
  if (!waits_for_saves_ || !leave_by_ || save == save_) return;
  save_ = save;
  leave_by_ = now + save_wait(save, leave_time_);
  if (save.total > 0) *leave_by_ += kSaveReportTime;
}

void ShutdownDeadline::job_ended(Instant now, bool is_behind) {
  if (!logs_by_ || is_behind) logs_by_ = now + kLogTail;
}

std::optional<Instant> ShutdownDeadline::wait_until() const {
  if (!leave_by_ || !logs_by_) return leave_by_ ? leave_by_ : logs_by_;
  return std::min(*leave_by_, *logs_by_);
}

bool ShutdownDeadline::has_passed(Instant now) const {
  const auto until = wait_until();
  return until && now >= *until;
}

std::chrono::milliseconds ShutdownDeadline::stop_grace(Instant now) const {
  if (!leave_by_) return kStopGrace;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*leave_by_ - now);
  return std::clamp(left, std::chrono::milliseconds(0), kStopGrace);
}

}  // namespace muster::cli
