// The models with which a device is measured (device_bench.h), and their steps.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/forecast/step_run.h"
#include "trainer_core/ops/backend.h"
#include "trainer_core/rank/rank_model.h"

namespace muster::trainer {

// The sizes of a model and of its batch, at scale 1.
struct BenchModel {
  int32_t emb_dim, layers, heads, mlp_dim, vocabulary, tokens, sequences;
  bool is_fitted;  // its operations determine the constants
};

// Returns the models. Different inner dimensions, lengths and head sizes determine the curves. The
// last model is between the others and checks them.
std::span<const BenchModel> bench_models();

// Returns the scale of the models for a device with this peak: faster devices need larger models,
// so that the steps are long enough to measure.
int32_t scale_for_peak(double peak_tflops);

// Returns the config of a model whose step is that of one rank.
TrainConfig bench_config(const BenchModel& model, int32_t scale, ComputeType dtype);
// Returns the config of the step that all ranks compute together: fsdp divides the parameters.
TrainConfig shared_step_config(int32_t ranks, ComputeType dtype, int32_t scale);

// A model with random parameters that runs steps on random tokens. Called on one thread.
class BenchRun {
 public:
  // Requires that `groups` has the mesh of the config and the memory of the backend, and outlives
  // the object.
  BenchRun(const TrainConfig& config, std::shared_ptr<Backend> backend, ProcessGroups& groups);

  // Runs a step. Returns its time in seconds.
  absl::StatusOr<double> step();

 private:
  const TrainConfig config_;
  ProcessGroups& groups_;
  RankModel rank_model_;
  StepRunOptions options_;
};

}  // namespace muster::trainer
