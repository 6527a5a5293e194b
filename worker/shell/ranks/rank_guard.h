// A child process of the worker that kills the worker's ranks if the worker stops responding.
//
// A worker that is stopped (SIGSTOP) or hangs sends no heartbeats. When its lease ends, the
// coordinator starts the job's next attempt elsewhere, but the ranks of the earlier attempt are
// processes of their own and continue. If the worker's loop shows no sign of life, the guard kills
// the ranks before the lease ends. A coordinator that has other evidence against the worker does
// not wait for the lease (coordinator/core/liveness/reach.h); then both attempts run for some
// seconds. The loop of a worker without a coordinator shows life, so its ranks continue.
//
// The guard counts its own wake-ups instead of reading a clock: if the whole machine is suspended,
// no time passes for it, either.
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>

#include <absl/status/statusor.h>

#include "common/time/time.h"

namespace muster::worker {

// The maximum time between two signs of life of the worker: a fraction of the shortest useful
// lease.
constexpr Duration kGuardBeat = std::chrono::milliseconds(250);

class RankGuard {
 public:
  // Starts the guard process. Requires that this process has one thread, which lives as long as the
  // worker: the kernel kills the guard when that thread ends. `command_line`: main()'s arguments.
  // The guard overwrites its own copy of them, so that searches for workers do not find it.
  static absl::StatusOr<std::unique_ptr<RankGuard>> start(std::span<char*> command_line = {});
  // Ends the guard process.
  ~RankGuard();
  RankGuard(const RankGuard&) = delete;
  RankGuard& operator=(const RankGuard&) = delete;

  // Sets the coordinator's lease of this worker. The guard acts a fifth earlier, but not within
  // 1 s; without a lease it never does.
  void set_lease(Duration lease);
  // Shows the guard that the worker's loop runs. Called at least once every kGuardBeat.
  void show_life();
  // Add and remove the process group of a rank. A group must be removed before its rank is reaped,
  // because another group may have the number afterwards.
  void add(pid_t group);
  void remove(pid_t group);
  // Returns whether the guard has killed the group.
  bool has_killed(pid_t group) const;
  pid_t pid() const { return pid_; }

 private:
  struct Page;
  explicit RankGuard(Page* page) : page_(page) {}

  Page* page_;  // shared with the guard process
  pid_t pid_ = 0;
};

}  // namespace muster::worker
