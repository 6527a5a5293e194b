// The lines that training prints, in MaxText's format: users' parsers read these lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/progress_page.h"
#include "trainer_core/base/memory_plan.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/report/flops.h"
#include "trainer_core/report/run_figures.h"

namespace muster::trainer {

// Figures of a model with experts.
struct ExpertRecord {
  double balance_loss = 0;  // included in StepRecord's loss
  // The share of routing choices that were dropped because their expert was full.
  double dropped_fraction = 0;
};

// The collectives of a step's passes: gradients, gathered parameters, and exchanges between the
// ranks of a slice.
struct CommRecord {
  double seconds = 0;
  double hidden_fraction = 0;  // the share of `seconds` that overlaps with computation
};

// Figures of one stage of a pipeline.
struct PipelineRecord {
  // The share of the step that the schedule leaves idle (parallel/pipeline_schedule.h).
  double bubble_fraction = 0;
  // How long the step's passes waited for other stages.
  double wait_seconds = 0;
};

// One completed step, as logs, metrics and tests see it.
struct StepRecord {
  int64_t step = 0;  // from 0
  double seconds = 0;
  // The part of `seconds` in which the step waited for its batches.
  double data_wait_seconds = 0;
  // The part of `seconds` in which the computation waited for peers.
  double collective_wait_seconds = 0;
  double tflops_per_device = 0;  // TFLOP in this step; not per second
  double tflops_causal_per_device = 0;
  double tokens_per_device = 0;
  double total_weights = 0;  // over all ranks
  double loss = 0;           // mean over the targets of all ranks, nats
  std::optional<ExpertRecord> experts;
  std::optional<CommRecord> comm;  // with several ranks only
  std::optional<PipelineRecord> pipeline;
  double raw_grad_norm = 0;  // before clipping
  double grad_norm = 0;      // after clipping
  double param_norm = 0;     // after the update
  double learning_rate = 0;
  Throughput throughput = {};        // of all devices
  double estimated_run_seconds = 0;  // wall time of the whole run
  // The time between the previous step and this one; not part of `seconds`.
  double checkpoint_stall_seconds = 0;
  // Batches whose loss was not finite and that were skipped, since this process began.
  int64_t skipped_batches = 0;
};

// Returns the fields of the rank's progress page.
StepProgress progress_of(const StepRecord& record);

// One evaluation, after the step `step`.
struct EvalRecord {
  int64_t step = 0;
  double loss = 0;  // mean over all targets, nats
  double total_weights = 0;
};

// Sums the time that the steps of a run waited for data.
class DataWait {
 public:
  void add(const StepRecord& record);
  int64_t steps() const { return steps_; }
  // "data wait: 0.004 of 31.416 seconds in 100 steps (0.013%), at most 0.003 in one". The first
  // step counts only if it is the only one: no computation overlaps with the reading of its data.
  std::string line() const;

 private:
  int64_t steps_ = 0;
  StepRecord first_;
  double seconds_ = 0;  // this and the next two: without the first step
  double waited_ = 0;
  double longest_ = 0;
};

// "completed step: 49, seconds: 7.908, TFLOP/s/device: 460.480, Tokens/s/device: 1035.970,
// total_weights: 524288, loss: 0.000"
std::string step_line(const StepRecord& record);
// "eval metrics after step: 49, loss=2.345, total_weights=75264"
std::string eval_line(const EvalRecord& record);
// "Early stop and exit loop after reaching target_eval_loss=2.1"
std::string target_reached_line(double target);
// "number parameters: 6.738 billion"; of small models "12.3 million" or "19,200"
std::string parameters_line(int64_t parameters);
// "Per train step:\n Total TFLOPs: … \n split as …% learnable weight flops and …% attention flops"
std::string per_step_block(const StepTflops& tflops);
// "\npipeline: 4 stages of 8 layers, 2 repeats, 8 micro-batches of 1 sequence, bubble 15.8%"; empty
// without a pipeline.
std::string pipeline_line(const TrainConfig& config);

// "memory: 184.6 MiB (parameters 19.1, gradients 19.1, optimizer 38.2, activations 103.0, workspace
// 5.2)": the memory that a rank maps.
std::string memory_line(const MemoryPlan& plan);

// One line of metrics_file: MaxText's scalar names, without the line break.
std::string metrics_line(const StepRecord& record, const std::string& run_name);
std::string metrics_line(const EvalRecord& record, const std::string& run_name);
// The same values as (name, value) pairs.
std::vector<std::pair<std::string, double>> scalars_of(const StepRecord& record);
std::vector<std::pair<std::string, double>> scalars_of(const EvalRecord& record);

}  // namespace muster::trainer
