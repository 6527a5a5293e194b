// The progress of the checkpoint that ranks write after an order to stop, and how long they may
// take. The launcher, the coordinator and the worker wait by the same rule:
//
//   order to stop ──grace──▶ SIGKILL
//        └─ a save begins, writes or ends: the wait begins again, with save_wait()
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "common/progress/checkpoint_times.h"
#include "common/time/time.h"

namespace muster {

// The wait for a save that writes nothing; after it the ranks are killed. Shared file systems pause
// under load and while a server fails over: an NFS client sends a lost request again after 60 s
// (timeo=600, nfs(5)), and pauses of 18 s have been seen. A checkpoint is worth two such waits.
constexpr Duration kSaveStallMax = std::chrono::seconds(120);
// The wait for the end of a save after the ranks on this node have written everything: other nodes
// may still write, and the file system has to make the files durable.
constexpr Duration kSaveEndMax = std::chrono::minutes(10);

// Sizes in MiB, which fit into the 32-bit fields of the progress page.
struct SaveProgress {
  uint64_t total = 0;  // size of the saves in progress; 0: none
  uint64_t written = 0;

  void add(const CheckpointTimes& rank) {
    total += rank.saving_mib;
    written += rank.written_mib;
  }
  // Undoes add() of the same values.
  void remove(const CheckpointTimes& rank) {
    total -= rank.saving_mib;
    written -= rank.written_mib;
  }
  friend bool operator==(const SaveProgress&, const SaveProgress&) = default;
};

// Returns the time from the newest change of `progress` until its ranks are killed. `grace`: the
// wait if no save is in progress.
inline Duration save_wait(const SaveProgress& progress, Duration grace) {
  if (progress.total == 0) return grace;
  return std::max(grace, progress.written < progress.total ? kSaveStallMax : kSaveEndMax);
}

}  // namespace muster
