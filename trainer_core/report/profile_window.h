// profiler=nsys: which steps Nsight Systems records.
//
//   nsys profile --capture-range=cudaProfilerApi … ──▶ ranks run, nothing is recorded
//   skip_first_n_steps_for_profiler steps of this process, profiler_steps steps that are recorded, then nothing any more
//
// MaxText's keys and meaning. `muster run` puts nsys in front of itself (cli/run/profiler.h).
#pragma once

#include <cstdint>
#include <ostream>

#include "trainer_core/base/train_config.h"
#include "trainer_core/ops/backend.h"

namespace muster::trainer {

// The thread that trains.
class ProfileWindow {
 public:
  // Rank 0 alone records, or all do. `backend` may be null: a processor, where there is nothing to record. `out` gets rank 0's lines.
  ProfileWindow(const ProfileConfig& config, Backend* backend, int rank, std::ostream& out);
  ~ProfileWindow() { stop(); }
  ProfileWindow(const ProfileWindow&) = delete;
  ProfileWindow& operator=(const ProfileWindow&) = delete;

  void begin_step();
  // Of a step whose work is done.
  void end_step();

 private:
  void stop();

  const ProfileConfig config_;
  Backend* const backend_;  // null: this rank records nothing
  const int rank_;
  std::ostream& out_;
  int64_t steps_ = 0;  // of this process that have begun
  bool records_ = false;
};

}  // namespace muster::trainer
