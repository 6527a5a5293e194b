// Deadlines of `muster run` for its job, its ranks' last lines and its daemons. From the first
// Ctrl-C on, one deadline covers all of them: the promise is 5 s, unless a longer time was
// requested, or a save that makes progress needs it.
#pragma once

#include <chrono>
#include <optional>

#include "common/save_progress.h"
#include "common/time.h"

namespace muster::cli {

// Time from the first Ctrl-C until the rest is killed, which takes the remainder of the 5 s on a
// loaded machine.
constexpr auto kShutdownTime = std::chrono::milliseconds(4500);
// Time from the worker's deadline of a save until the rest is killed.
constexpr auto kSaveReportTime = std::chrono::milliseconds(3000);
// A daemon without ranks stops in milliseconds.
constexpr auto kStopGrace = std::chrono::milliseconds(1500);
// The worker ships the last log bytes before it reports a rank's end, so this is rarely used up.
constexpr auto kLogTail = std::chrono::milliseconds(2000);

// Not thread-safe. The caller supplies the clock.
class ShutdownDeadline {
 public:
  // `waits_for_saves`: the time is no bound for a save that makes progress.
  explicit ShutdownDeadline(std::chrono::milliseconds leave_time = kShutdownTime,
                            bool waits_for_saves = false)
      : leave_time_(leave_time), waits_for_saves_(waits_for_saves) {}
  // A request to leave. Repeated requests do not move the deadline.
  void leave(Instant now);
  // Ends all waiting.
  void leave_at_once(Instant now) {
    leave_by_ = now;
    waits_for_saves_ = false;
  }
  // The newest progress of the ranks' saves (save_progress.h). Moves the deadline to shortly after
  // the worker's.
  void save_moved(const SaveProgress& save, Instant now);
  // The job is in a terminal state; only its logs may be missing. The first call counts, and later
  // ones while our reader lags behind the output.
  void job_ended(Instant now, bool is_behind);

  // Returns how long to wait for the job's end or its logs; nullopt: no deadline.
  std::optional<Instant> wait_until() const;
  bool is_up(Instant now) const;
  // Returns the time left for the daemons to stop by themselves.
  std::chrono::milliseconds stop_grace(Instant now) const;

 private:
  std::chrono::milliseconds leave_time_;
  bool waits_for_saves_;
  SaveProgress save_;
  std::optional<Instant> leave_by_, logs_by_;
};

}  // namespace muster::cli
