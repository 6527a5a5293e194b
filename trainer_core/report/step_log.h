// The lines that training prints. They have MaxText's format, because users have programs that
// parse them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/progress/progress_page.h"
#include "trainer_core/base/memory_plan.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/evaluation/task_result.h"
#include "trainer_core/report/flops.h"
#include "trainer_core/report/run_figures.h"

namespace muster::trainer {

// The figures of a step of a model with experts.
struct ExpertRecord {
  double balance_loss = 0;  // included in StepRecord::loss
  // The fraction of routing choices that were dropped because their expert was full.
  double dropped_fraction = 0;
};

// The figures of the collectives during the passes of a step: reductions of gradients, gathers of
// parameters, and exchanges between the ranks of a slice.
struct CommRecord {
  double seconds = 0;          // time in collectives
  double hidden_fraction = 0;  // fraction of `seconds` that overlaps with the computation
};

// The figures of a step of a pipeline stage.
struct PipelineRecord {
  // The fraction of the step in which the schedule leaves a stage idle (pipeline_bubble() in
  // parallel/pipeline_schedule.h).
  double bubble_fraction = 0;
  // The time for which passes of the step have waited for other stages.
  double wait_seconds = 0;
};

// Sums over pairs of preference tuning (loop/dpo_loss.h).
struct PreferenceSums {
  double pairs = 0;
  double loss = 0;
  double chosen_reward = 0;
  double rejected_reward = 0;
  double accurate = 0;  // pairs whose chosen answer has the higher reward
  double chosen_logps = 0;
  double rejected_logps = 0;

  PreferenceSums& operator+=(const PreferenceSums& other);
};

// The figures of preference tuning, with TRL's names: means over pairs.
std::vector<std::pair<std::string, double>> preference_figures(const PreferenceSums& sums);

// A completed step, for logs, metrics and tests.
struct StepRecord {
  int64_t step = 0;  // from 0
  double seconds = 0;
  // The part of `seconds` in which the step waited for its data.
  double data_wait_seconds = 0;
  // The part of `seconds` in which the computation waited for peers.
  double collective_wait_seconds = 0;
  double tflops_per_device = 0;  // TFLOP of this step, not per second
  double tflops_causal_per_device = 0;
  double tokens_per_device = 0;
  double total_weights = 0;  // sum over all ranks
  double loss = 0;           // mean over the targets of all ranks, in nats
  std::optional<ExpertRecord> experts;
  std::optional<CommRecord> comm;  // only with several ranks
  std::optional<PipelineRecord> pipeline;
  std::optional<PreferenceSums> preferences;  // nullopt: no use_dpo
  double raw_grad_norm = 0;                   // before clipping
  double grad_norm = 0;                       // after clipping
  double param_norm = 0;                      // after the update
  double learning_rate = 0;
  Throughput throughput = {};        // sum over all devices
  double estimated_run_seconds = 0;  // estimated wall time of the complete run
  // The time between the previous step and this one, which is not part of `seconds`.
  double checkpoint_stall_seconds = 0;
  // The number of batches that this process has skipped because their loss or gradient was not
  // finite or a spike.
  int64_t skipped_batches = 0;
};

// Returns the values of a step for the rank's progress page.
StepProgress progress_of(const StepRecord& record);

// An evaluation.
struct EvalRecord {
  int64_t step = 0;  // the last completed step, from 0
  double loss = 0;   // mean over all targets, in nats
  double total_weights = 0;
  bool has_loss = true;  // whether there is evaluation data besides the tasks
  std::vector<TaskResult> tasks = {};
  std::optional<PreferenceSums> preferences = {};  // nullopt: no use_dpo
};

// Sums the time for which the steps of a run have waited for data.
class DataWait {
 public:
  // Adds a step.
  void add(const StepRecord& record);
  int64_t steps() const { return steps_; }
  // Returns the line "data wait: 0.004 of 31.416 seconds in 100 steps (0.013%), at most 0.003 in
  // one". The first step is not counted unless it is the only one, because no computation can
  // overlap with the reading of its data.
  std::string line() const;

 private:
  int64_t steps_ = 0;
  StepRecord first_;
  double seconds_ = 0;  // seconds_, waited_ and longest_ omit the first step
  double waited_ = 0;
  double longest_ = 0;
};

// Returns "completed step: 49, seconds: 7.908, TFLOP/s/device: 460.480, Tokens/s/device: 1035.970,
// total_weights: 524288, loss: 0.000", and a second line with the figures of preference tuning.
std::string step_line(const StepRecord& record);
// Returns "eval metrics after step: 49, loss=2.345, total_weights=75264".
std::string eval_line(const EvalRecord& record);
// Returns the summary of a job that only evaluates: "summary: loss 2.345, perplexity 10.43 of
// 75,264 tokens in 7 batches".
std::string eval_summary_line(const EvalRecord& record, uint64_t batches);
// Returns "eval tasks after step: 49, lambada/acc=0.425, lambada/perplexity=9.871", for programs
// that parse the log, with a line break.
std::string eval_tasks_line(const EvalRecord& record);
// Returns the content of a results file of eval_output: {"step": 49, "run_name": "first",
// "results": {"lambada": {…}}}.
std::string results_json(const EvalRecord& record, const std::string& run_name);
// Returns "Early stop and exit loop after reaching target_eval_loss=2.1".
std::string target_reached_line(double target);
// Returns "number parameters: 6.738 billion"; for small models the number is "12.3 million" or
// "19,200".
std::string parameters_line(int64_t parameters);
// Returns the line that states how many parameters are trained; "" if all are.
std::string trained_line(int64_t trained, int64_t parameters);
// Returns "Per train step:\n Total TFLOPs: … \n split as …% learnable weight flops and …% attention
// flops".
std::string per_step_block(const StepTflops& tflops);
// Returns "\npipeline: 4 stages of 8 layers, 2 repeats, 8 micro-batches of 1 sequence, bubble
// 15.8%"; empty without a pipeline.
std::string pipeline_line(const TrainConfig& config);

// Returns the memory that a rank allocates: "memory: 184.6 MiB (parameters 19.1, gradients 19.1,
// optimizer 38.2, activations 103.0, workspace 5.2)".
std::string memory_line(const MemoryPlan& plan);

// Return a line of `metrics_file`, without the line break. It has MaxText's names of scalars.
std::string metrics_line(const StepRecord& record, const std::string& run_name);
std::string metrics_line(const EvalRecord& record, const std::string& run_name);
// Return the same values as pairs (name, value).
std::vector<std::pair<std::string, double>> scalars_of(const StepRecord& record);
std::vector<std::pair<std::string, double>> scalars_of(const EvalRecord& record);

}  // namespace muster::trainer
