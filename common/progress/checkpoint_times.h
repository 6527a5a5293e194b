// A rank's checkpoint counters since its attempt began, and the state of its newest save. The
// counters (saved, failed, stall_seconds) are cumulative, so a lost or repeated message does no
// harm. Plain memory: the struct is part of the progress page's layout.
#pragma once

#include <array>
#include <cstdint>

namespace muster {

struct CheckpointTimes {
  // checkpoints that were saved, and attempts to save that failed
  uint64_t saved = 0;
  uint64_t failed = 0;
  // duration of the newest write, in seconds
  double seconds = 0;
  // training time lost to all checkpoints, in seconds
  double stall_seconds = 0;
  // 1: SIGUSR2 requests a checkpoint from this process; 0: the process may not handle that signal,
  // which would kill it
  uint32_t on_request = 0;
  // MiB of the save that this process writes now; 0: there is no such save
  uint32_t saving_mib = 0;
  // MiB of `saving_mib` that are written
  uint32_t written_mib = 0;
  std::array<char, 4> reserved{};

  friend bool operator==(const CheckpointTimes&, const CheckpointTimes&) = default;
};
static_assert(sizeof(CheckpointTimes) == 48);

}  // namespace muster
