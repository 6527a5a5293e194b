// Deadlines of `muster run` for the end of its job, its ranks' last lines and its daemons. From the
// first Ctrl-C on, one deadline covers all three. It is 5 s, unless the user has requested a longer
// time or a save that makes progress needs it.
#pragma once

#include <chrono>
#include <optional>

#include "common/progress/save_progress.h"
#include "common/time/time.h"

namespace muster::cli {

// Time from the first Ctrl-C until all remaining processes are killed. On a loaded machine, killing
// takes the remainder of the 5 s.
constexpr auto kShutdownTime = std::chrono::milliseconds(4500);
// Time from the worker's deadline for a save until all remaining processes are killed.
constexpr auto kSaveReportTime = std::chrono::milliseconds(3000);
// Time for the daemons to stop. A daemon without ranks stops in milliseconds.
constexpr auto kStopGrace = std::chrono::milliseconds(1500);
// Time to receive the ranks' last lines after the job's end. It is rarely used up, because the
// worker sends the last log bytes before it reports a rank's end.
constexpr auto kLogTail = std::chrono::milliseconds(2000);

// Computes the deadlines. The caller passes the current time. Not thread-safe.
class ShutdownDeadline {
 public:
  // `leave_time`: time from the first request to the deadline. `waits_for_saves`: a save that makes
  // progress moves the deadline.
  explicit ShutdownDeadline(std::chrono::milliseconds leave_time = kShutdownTime,
                            bool waits_for_saves = false)
      : leave_time_(leave_time), waits_for_saves_(waits_for_saves) {}
  // Records a request to end the job. Repeated requests do not move the deadline.
  void leave(Instant now);
  // Moves the deadline to `now` for good.
  void leave_at_once(Instant now) {
    leave_by_ = now;
    waits_for_saves_ = false;
  }
  // Records the newest progress of the ranks' saves (save_progress.h). If they make progress, moves
  // the deadline to kSaveReportTime after the worker's deadline.
  void observe_save(const SaveProgress& save, Instant now);
  // Starts the deadline kLogTail for the last lines, because the job has ended. Later calls have an
  // effect only with `is_behind`, which restarts it: the reader of our output is too slow.
  void job_ended(Instant now, bool is_behind);

  // Returns the time until which to wait for the job's end or its logs; nullopt: no deadline.
  std::optional<Instant> wait_until() const;
  // Returns whether wait_until() has passed.
  bool has_passed(Instant now) const;
  // Returns the time left for the daemons to stop by themselves.
  std::chrono::milliseconds stop_grace(Instant now) const;

 private:
  std::chrono::milliseconds leave_time_;
  bool waits_for_saves_;
  SaveProgress save_;
  std::optional<Instant> leave_by_, logs_by_;
};

}  // namespace muster::cli
