// Reaps ended ranks and kills the processes that they leave behind.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "worker/core/rank.h"
#include "worker/shell/ranks/rank_guard.h"
#include "worker/stacks/cpu_time.h"

namespace muster::worker {

// The end of a rank's process.
struct ReapedProcess {
  RankKey key;
  int exit_code = 0;  // -1: killed by a signal
  int signal = 0;
  bool by_guard = false;  // the guard killed it, because the worker stood still
  std::optional<CpuTime> cpu_time{};
};

// Tracks the worker's child processes. Called only on the event loop's thread, which also starts
// the processes.
class Reaper {
 public:
  // `proc_root`: "/proc", or a folder with its layout. `guard`: must outlive the reaper and learns
  // about each rank; null: none.
  explicit Reaper(std::string proc_root, RankGuard* guard = nullptr)
      : proc_root_(std::move(proc_root)), guard_(guard) {}

  // Makes this process the subreaper of its descendants, so that processes whose parents have died
  // become this process's children.
  static absl::Status adopt_orphans();

  // Registers the process of a rank, which runs as the user `uid`.
  void add(pid_t pid, const RankKey& key, uid_t uid);
  // Forgets a process that is not its rank's any more; reap() does not return it.
  void forget(pid_t pid);

  // Sends `signo` to the rank's process group.
  void signal(const RankKey& key, int signo) const;

  // Reaps every child that has ended and returns the ranks among them. Kills the remaining
  // processes of a dead rank's process group, and the orphans of ranks that are not alive: those
  // whose environment names such a rank, and those of a user other than the worker's who had ranks
  // and has none now, whatever their environment has. The shell calls it after SIGCHLD and
  // periodically.
  std::vector<ReapedProcess> reap();

 private:
  struct RankProcess {
    RankKey key;
    uid_t uid = 0;
  };
  std::optional<pid_t> next_ended() const;
  // A process that its parent has left behind.
  struct Orphan {
    uint64_t start_ticks = 0;
    RankKey key;  // rank_of_environment()
  };
  void kill_stragglers();
  bool is_straggler(pid_t pid);
  // Reads the environment of a process once.
  RankKey rank_of_orphan(pid_t pid, size_t bytes_max);
  std::vector<pid_t> children() const;

  std::string proc_root_;
  RankGuard* guard_;
  std::set<uid_t> users_;               // users other than the worker's who had ranks
  std::map<pid_t, Orphan> orphans_;     // those whose environment is known
  std::map<pid_t, RankProcess> ranks_;  // ranks that are not reaped yet, by their process's pid
};

// Returns the rank to which a process belongs, from the variables that the worker sets for its
// ranks. `block`: the process's environment, separated by NUL. Returns a key with job 0 if the
// process belongs to no rank.
RankKey rank_of_environment(std::string_view block);

}  // namespace muster::worker
