// The steps that Nsight Systems records if profiler=nsys.
//
//   nsys profile --capture-range=cudaProfilerApi … starts the ranks; nothing is recorded yet
//   ──▶ skip_first_n_steps_for_profiler steps of this process run without recording
//   ──▶ the next profiler_steps steps are recorded; later steps are not
//
// The keys have the names and the meaning of MaxText's. `muster run` starts itself under nsys
// (cli/run/profiler.h).
#pragma once

#include <cstdint>
#include <ostream>

#include "trainer_core/base/train_config.h"
#include "trainer_core/ops/backend.h"

namespace muster::trainer {

// Starts and stops the recording. Called on the training thread only.
class ProfileWindow {
 public:
  // Records rank 0 only, or all ranks (ProfileConfig::all_ranks). A null `backend` means that the
  // rank computes on the CPU; then nothing is recorded. Rank 0 writes lines about the recording to
  // `out`. `backend` and `out` must outlive this object.
  ProfileWindow(const ProfileConfig& config, Backend* backend, int rank, std::ostream& out);
  ~ProfileWindow() { stop(); }
  ProfileWindow(const ProfileWindow&) = delete;
  ProfileWindow& operator=(const ProfileWindow&) = delete;

  // Begins a step, which starts the recording if it is the first one to record.
  void begin_step();
  // Ends a step. Requires that the work of the step is complete.
  void end_step();

 private:
  void stop();

  const ProfileConfig config_;
  Backend* const backend_;  // null: this rank records nothing
  const int rank_;
  std::ostream& out_;
  int64_t steps_ = 0;     // steps that this process has begun
  bool records_ = false;  // the recording is in progress
};

}  // namespace muster::trainer
