// Ends of processes: the ranks, and whatever they leave behind.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "worker/core/rank.h"

namespace muster::worker {

struct ReapedRank {
  RankKey key;
  int exit_code = 0;  // -1 when killed by a signal
  int signal = 0;
};

// Knows the worker's children. Not thread-safe: the event loop's thread calls everything, and is the one that starts them.
class Reaper {
 public:
  // `proc_root`: "/proc", or a folder like it.
  explicit Reaper(std::string proc_root) : proc_root_(std::move(proc_root)) {}

  // Makes this process the parent of its descendants' orphans, so that no process of a rank outlives it.
  static absl::Status adopt_orphans();

  void add(pid_t pid, const RankKey& key) { ranks_[pid] = key; }

  // Sends `signo` to the rank's whole process group.
  void signal(const RankKey& key, int signo) const;

  // After SIGCHLD, and now and then: collects every child that has ended. The rest of a dead rank's process group is killed, and so
  // are orphans whose environment says that they belong to a rank that is not alive.
  std::vector<ReapedRank> reap();

 private:
  std::optional<pid_t> next_ended() const;
  void kill_stragglers() const;
  std::vector<pid_t> children() const;

  std::string proc_root_;
  std::map<pid_t, RankKey> ranks_;  // not reaped yet, by the pid of the group's leader
};

// The rank that a process with this environment block (NUL-separated) belongs to, by the variables that the
// worker gives its ranks; job 0 when it belongs to none.
RankKey rank_of_environment(std::string_view block);

}  // namespace muster::worker
