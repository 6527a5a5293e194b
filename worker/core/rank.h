// The values that the worker's core, its events and its actions speak of.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/gpu.h"
#include "common/ids.h"
#include "common/progress_page.h"
#include "common/stack_trace_spec.h"
#include "common/step_times.h"
#include "common/time.h"

namespace muster::worker {

// One launch of one job.
struct LaunchKey {
  JobId job;
  Attempt attempt;

  friend auto operator<=>(const LaunchKey&, const LaunchKey&) = default;
};

// One rank of one launch of one job: what every message about a process carries.
struct RankKey {
  JobId job;
  Attempt attempt;
  Rank rank;

  LaunchKey launch() const { return {job, attempt}; }
  friend auto operator<=>(const RankKey&, const RankKey&) = default;
};

std::string to_string(const LaunchKey& key);  // "job 3 attempt 1"
std::string to_string(const RankKey& key);    // "job 3 attempt 1 rank 0"

// What all ranks of a launch share; see muster.v1.JobSpec for meaning and bounds.
struct LaunchSpec {
  std::string job_name;
  int32_t nodes = 1;
  int32_t ranks_per_node = 1;
  std::string train_config_json;
  std::map<std::string, std::string> environment;
  StackTraceSpec stack_traces{};
  std::vector<std::string> command{};  // empty: the trainer
  std::string working_directory{};
  int32_t restarts_max = 0;     // for a program that wants to know
  bool output_is_life = false;  // what a rank writes counts as progress
  int32_t gpus_per_rank = 0;    // of its own, or kGpusOfSlot

  int32_t world_size() const { return nodes * ranks_per_node; }
};

struct RankAssignment {
  Rank rank;
  int32_t local_rank = 0;

  friend bool operator==(const RankAssignment&, const RankAssignment&) = default;
};

// One launch's part on this worker.
struct Launch {
  JobId job;
  Attempt attempt;
  LaunchSpec spec;
  std::vector<RankAssignment> ranks;
  std::string rendezvous_address;  // host:port of the store of the worker that holds rank 0
  int32_t program_port = 0;        // of that worker's node, for this attempt of a program alone
  int64_t checkpoint_step = -1;    // that an earlier attempt has saved; below 1: none is known
  // This worker's GPUs that its ranks have to themselves, as CoreOptions::gpus numbers them; empty: none. First one of each local rank, in their order, then a second
  // one of each, and so on: who chooses by its LOCAL_RANK chooses one of its own.
  std::vector<int32_t> gpus{};

  // Those of one rank.
  std::vector<int32_t> gpus_of(int32_t local_rank) const;
};

// What a progress page says, as far as the coordinator wants it.
struct RankFigures {
  Phase phase = Phase::kInit;
  int64_t step = -1;  // steps completed, -1 before the first
  double loss = 0;
  double grad_norm = 0;
  double step_seconds = 0;
  double data_wait_seconds = 0;        // since the attempt began
  double collective_wait_seconds = 0;  // since the attempt began
  int64_t eval_step = 0;               // steps completed at the last evaluation; 0: none
  double eval_loss = 0;
  double tokens_per_second = 0;  // of this rank in the last step
  double tflops_per_device = 0;
  double device_peak_tflops = 0;
  int64_t checkpoint_step = -1;
  CheckpointTimes checkpoints;
  uint64_t tokens = 0;   // since the attempt began
  StepTimes step_times;  // since the attempt began
  Instant phase_start{};
  Instant last_progress{};
  char process_state = '?';  // of /proc/PID/stat; not of the page
};

// Bit for bit, so that a loss of NaN equals itself. A process that runs and one that sleeps are the same: both change many times a
// second.
bool same_figures(const RankFigures& a, const RankFigures& b);

RankFigures figures_from_page(const ProgressPage& page);

// A figure of one rank on its way to the coordinator.
struct RankProgress {
  RankKey key;
  int32_t pid = 0;
  RankFigures figures;
  Duration last_progress_age{};
  Duration phase_age{};
};

struct RunningRank {
  RankKey key;
  int32_t pid = 0;  // 0: not spawned yet
};

}  // namespace muster::worker
