// How long `muster run` still waits for its job, its ranks' last lines and its daemons. From the first Ctrl-C on, one
// deadline holds for all of them together: 5 s are promised, unless somebody has asked for more.
#pragma once

#include <chrono>
#include <optional>

#include "common/time.h"

namespace muster::cli {

// From the first Ctrl-C until whatever is left is killed, which takes the rest of the 5 s on a loaded machine.
constexpr auto kLeaveTime = std::chrono::milliseconds(4500);
// A daemon without ranks stops in milliseconds.
constexpr auto kStopGrace = std::chrono::milliseconds(1500);
// The worker ships the last log bytes before it reports a rank's end, so that this is seldom used up.
constexpr auto kLogTail = std::chrono::milliseconds(2000);

// One thread. The clock is the caller's.
class LeaveTime {
 public:
  explicit LeaveTime(std::chrono::milliseconds leave_time = kLeaveTime) : leave_time_(leave_time) {}
  // A wish to leave; a repeated one moves nothing.
  void leave(Instant now);
  // No more waiting at all.
  void leave_at_once(Instant now) { leave_by_ = now; }
  // The job is in a terminal state; what is still missing is its logs. Only the first call counts, and those while we have
  // some that our reader does not take.
  void job_ended(Instant now, bool is_behind);

  // Until when to wait for what is missing, the job's end or its logs; nullopt: for ever.
  std::optional<Instant> wait_until() const;
  bool is_up(Instant now) const;
  // What remains for the daemons to stop by themselves.
  std::chrono::milliseconds stop_grace(Instant now) const;

 private:
  std::chrono::milliseconds leave_time_;
  std::optional<Instant> leave_by_, logs_by_;
};

}  // namespace muster::cli
