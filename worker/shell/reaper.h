// Reaps ended ranks and kills the processes that they leave behind.
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
  int exit_code = 0;  // -1: killed by a signal
  int signal = 0;
};

// Tracks the worker's children. Not thread-safe: called on the event loop's thread only, which also
// starts them.
class Reaper {
 public:
  // `proc_root`: "/proc", or a folder with its layout.
  explicit Reaper(std::string proc_root) : proc_root_(std::move(proc_root)) {}

  // Makes this process the subreaper of its descendants, so that no process of a rank escapes it.
  static absl::Status adopt_orphans();

  void add(pid_t pid, const RankKey& key) { ranks_[pid] = key; }

  // Sends `signo` to the rank's process group.
  void signal(const RankKey& key, int signo) const;

  // Collects every child that has ended. Call after SIGCHLD and periodically. Kills the rest of a
  // dead rank's process group, and orphans whose environment names a rank that is not alive.
  std::vector<ReapedRank> reap();

 private:
  std::optional<pid_t> next_ended() const;
  void kill_stragglers() const;
  std::vector<pid_t> children() const;

  std::string proc_root_;
  std::map<pid_t, RankKey> ranks_;  // not reaped yet, by the pid of the group's leader
};

// Returns the rank to which a process with this environment block (NUL-separated) belongs, by the
// variables that the worker sets for its ranks; job 0 if it belongs to none.
RankKey rank_of_environment(std::string_view block);

}  // namespace muster::worker
