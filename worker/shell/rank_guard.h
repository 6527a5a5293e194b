// A child process of the worker that ends the worker's ranks when the worker stands still.
//
// A worker that is stopped (SIGSTOP) or hangs sends no heartbeats. After its lease the coordinator
// starts the job's next attempt elsewhere, but the ranks of the earlier attempt are processes of
// their own and continue. The guard observes that the worker's loop shows no life, and kills its
// ranks before that lease ends. The loop of a worker without a coordinator shows life, so its ranks
// continue.
//
// The guard counts its own wake-ups instead of reading a clock: if the whole machine is suspended,
// no time passes for it, either.
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>

#include <absl/status/statusor.h>

#include "common/time.h"

namespace muster::worker {

// How often the worker must show life. A fraction of the shortest useful lease.
constexpr Duration kGuardBeat = std::chrono::milliseconds(250);

class RankGuard {
 public:
  // Starts the guard process. Requires that this process has one thread, which lives as long as the
  // worker: the kernel kills the guard when that thread ends. `command_line`: main()'s arguments,
  // which the guard overwrites in its own copy, so that it is not found as a worker.
  static absl::StatusOr<std::unique_ptr<RankGuard>> start(std::span<char*> command_line = {});
  // Ends the guard process.
  ~RankGuard();
  RankGuard(const RankGuard&) = delete;
  RankGuard& operator=(const RankGuard&) = delete;

  // Sets the coordinator's lease of this worker. The guard acts a fifth earlier; without a lease it
  // never does.
  void set_lease(Duration lease);
  // Shows the guard that the worker's loop runs. Called at least once every kGuardBeat.
  void show_life();
  // Adds and removes the process group of a rank. Removed before the rank is reaped, so that the
  // group's number is not in use by others.
  void add(pid_t group);
  void remove(pid_t group);
  // Returns whether the guard has killed the group.
  bool has_killed(pid_t group) const;

 private:
  struct Page;
  explicit RankGuard(Page* page) : page_(page) {}

  Page* page_;  // shared with the guard process
  pid_t pid_ = 0;
};

}  // namespace muster::worker
