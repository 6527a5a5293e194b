// Forecasts the time of a training step on machines that need not exist, from the work that the
// trainer's own code does (step_recorder.h).
//
// Without a pipeline all ranks do the same work, and one of them is scheduled. In a pipeline the
// passes of one rank of the first, a middle and the last stage are scheduled; then the passes of
// all stages run in the trainer's order (parallel/pipeline_schedule.h). Micro-batches of the middle
// of a step are alike, so few of them are recorded.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/base/train_config.h"
#include "trainer_core/forecast/step_cost.h"
#include "trainer_core/forecast/step_schedule.h"
#include "trainer_core/forecast/step_trace.h"
#include "trainer_core/parallel/pipeline_schedule.h"
#include "trainer_core/report/flops.h"

namespace muster::trainer {

struct StepTimeForecast {
  double seconds = 0;
  // The parts of the step, which add up to `seconds`, in the order of a waterfall.
  std::vector<std::pair<std::string, double>> parts = {};
};

// A pass of a stage, for the timeline of a pipeline.
struct PassTime {
  PipelinePass pass;
  WorkTime time;
};

// The recorded work of a config. Thread-compatible.
class StepModel {
 public:
  // Records the work of one rank of up to three stages. Takes some 0.1 s for 80 layers. Returns
  // InvalidArgument for a job that only evaluates.
  static absl::StatusOr<StepModel> record(const TrainConfig& config);

  StepTimeForecast forecast(const StepMachine& machine) const;
  // Returns the times of all passes of all stages; empty without a pipeline.
  std::vector<std::vector<PassTime>> pipeline(const StepMachine& machine) const;
  // Returns the trace of the first stage, whose number of micro-batches may be less than that of
  // the config.
  const StepTrace& first_stage() const { return stages_.front().trace; }
  const StepTflops& tflops() const { return tflops_; }
  // Returns whether the layers' GEMMs are in 8 bits.
  bool quantized() const { return quantized_; }

 private:
  struct StageTrace {
    StepTrace trace;
    // The passes of the trace. Both are empty without a pipeline. `scores`: those of preference
    // tuning that score the micro-batches with one of two models, which precede `passes` twice.
    std::vector<PipelinePass> scores, passes;
  };
  struct StagePasses;

  StepModel() = default;
  StepTimeForecast forecast_passes(const StepCost& cost) const;
  StepTimeForecast forecast_pipeline(const StepCost& cost) const;
  std::vector<StagePasses> stage_passes(const StepCost& cost) const;
  // Returns the times of all passes of all stages, without or with gradients.
  std::vector<std::vector<PassTime>> run_pipeline(const std::vector<StagePasses>& stages,
                                                  bool scores) const;
  const StagePasses& of_stage(const std::vector<StagePasses>& all, int32_t stage) const;

  PipelineShape shape_;
  int32_t traced_micro_batches_ = 1;
  int32_t scoring_models_ = 0;  // that score each micro-batch before its gradient
  int32_t nodes_ = 1;
  bool quantized_ = false;
  StepTflops tflops_;
  std::vector<StageTrace> stages_;
};

// Returns {"seconds", "parts": [{"name", "seconds"}], "tflops", "tflops_causal", "peak_tflops"}.
nlohmann::json to_json(const StepTimeForecast& forecast, const StepModel& model,
                       const DeviceModel& device);

}  // namespace muster::trainer
