// The steps that Nsight Systems records with profiler=nsys.
//
//   nsys profile --capture-range=cudaProfilerApi … ──▶ ranks run, nothing is recorded
//   skip_first_n_steps_for_profiler steps of this process are not recorded, the next profiler_steps
//   steps are, later ones are not
//
// The keys and their meaning are MaxText's. `muster run` starts nsys around itself
// (cli/run/profiler.h).
#pragma once

#include <cstdint>
#include <ostream>

#include "trainer_core/base/train_config.h"
#include "trainer_core/ops/backend.h"

namespace muster::trainer {

// Called on the training thread only.
class ProfileWindow {
 public:
  // Records on rank 0 only, or on all ranks (ProfileConfig::all_ranks). `backend` may be null: the
  // rank computes on the CPU, and nothing is recorded. Rank 0 writes its lines to `out`. `backend`
  // and `out` outlive the window.
  ProfileWindow(const ProfileConfig& config, Backend* backend, int rank, std::ostream& out);
  ~ProfileWindow() { stop(); }
  ProfileWindow(const ProfileWindow&) = delete;
  ProfileWindow& operator=(const ProfileWindow&) = delete;

  void begin_step();
  // Requires: the step's work is complete.
  void end_step();

 private:
  void stop();

  const ProfileConfig config_;
  Backend* const backend_;  // null: this rank records nothing
  const int rank_;
  std::ostream& out_;
  int64_t steps_ = 0;  // steps that this process has begun
  bool records_ = false;
};

}  // namespace muster::trainer
