// Values shared by the worker's core, its events and its actions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/job/gpu.h"
#include "common/job/ids.h"
#include "common/job/job_spec.h"
#include "common/job/stalled_link.h"
#include "common/job/thread_samples.h"
#include "common/progress/progress_page.h"
#include "common/progress/step_times.h"
#include "common/time/time.h"

namespace muster::worker {

// Identifies one launch of one job.
struct LaunchKey {
  JobId job;
  Attempt attempt;

  friend auto operator<=>(const LaunchKey&, const LaunchKey&) = default;
};

// Identifies one rank of one launch of one job; every message about a process carries it.
struct RankKey {
  JobId job;
  Attempt attempt;
  Rank rank;

  LaunchKey launch() const { return {job, attempt}; }
  friend auto operator<=>(const RankKey&, const RankKey&) = default;
};

// Returns "job 3 attempt 1".
std::string to_string(const LaunchKey& key);
// Returns "job 3 attempt 1 rank 0".
std::string to_string(const RankKey& key);

// A rank and its number among the launch's ranks on this node, from 0 on.
struct RankAssignment {
  Rank rank;
  int32_t local_rank = 0;

  friend bool operator==(const RankAssignment&, const RankAssignment&) = default;
};

// The part of one launch that runs on this worker.
struct Launch {
  JobId job;
  Attempt attempt;
  JobSpec spec;  // its number of nodes is that of this attempt
  std::vector<RankAssignment> ranks;
  std::string rendezvous_address;  // host:port of the rendezvous store on the worker of rank 0
  // port on the node of rank 0, reserved for this attempt if the job runs a program; 0: none
  int32_t program_port = 0;
  // step of the checkpoint that an earlier attempt has saved; below 1: unknown
  int64_t checkpoint_step = -1;
  // time within which the trainer's ranks must find each other; zero: the trainer's default
  Duration rendezvous_time{};
  // This worker's GPUs that belong exclusively to its ranks, as indices into CoreOptions::gpus;
  // empty: none. Order: the first GPU of each local rank, then the second of each, and so on, so
  // that a program that selects the GPU with index LOCAL_RANK gets a GPU of its own.
  std::vector<int32_t> gpus{};

  // Returns the GPUs of one rank.
  std::vector<int32_t> gpus_of(int32_t local_rank) const;
};

// The fields of a progress page that the coordinator uses.
struct RankFigures {
  Phase phase = Phase::kInit;
  int64_t step = -1;  // steps completed, -1 before the first
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  double step_seconds = 0;
  double data_wait_seconds = 0;        // since the attempt began
  double collective_wait_seconds = 0;  // since the attempt began
  int64_t eval_step = 0;               // steps completed at the last evaluation; 0: none
  double eval_loss = 0;
  double tokens_per_second = 0;  // rate of this rank in the last step
  double tflops_per_device = 0;
  double device_peak_tflops = 0;
  int64_t checkpoint_step = -1;
  CheckpointTimes checkpoints;
  uint64_t tokens = 0;   // since the attempt began
  StepTimes step_times;  // since the attempt began
  Instant phase_start{};
  Instant last_progress{};
  // state of the rank's process in /proc/PID/stat; not a field of the page
  char process_state = '?';
  // connections that other hosts do not answer; not a field of the page either
  std::vector<StalledLink> stalled_links{};
  // of a program that trains; not a field of the page either
  ThreadSamples main_thread{};
};

// Compares bit for bit, so that a NaN loss equals itself. The process states "running" and
// "sleeping" count as equal, because processes alternate between them many times a second. Ignores
// the samples of the main thread, which grow with each read.
bool same_figures(const RankFigures& a, const RankFigures& b);

// Returns the figures in a rank's progress page.
RankFigures figures_from_page(const ProgressPage& page);

// One rank's figures for a heartbeat.
struct RankProgress {
  RankKey key;
  int32_t pid = 0;
  RankFigures figures;
  Duration last_progress_age{};
  Duration phase_age{};
};

// A rank and the process that runs it.
struct RunningRank {
  RankKey key;
  int32_t pid = 0;  // 0: not spawned yet
};

}  // namespace muster::worker
