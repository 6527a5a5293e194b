// What a rank maps to train: the transformer's plan with the optimizer's state. The preflight counts these bytes, and a run
// allocates them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "trainer_core/base/train_config.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/model/transformer.h"
#include "trainer_core/optim/optimizer.h"
#include "trainer_core/parallel/pipeline_schedule.h"

namespace muster::trainer {

struct TrainingPlan {
  TransformerPlan model;
  std::unique_ptr<Optimizer> optimizer;
  std::optional<BufferId> staging{};  // the parameters' copy, then the state's

  const MemoryPlan& memory() const { return model.memory; }
  CheckpointLayout checkpoint_layout() const;
};

// What a checkpoint of that model and that optimizer holds.
CheckpointLayout checkpoint_layout(const ModelConfig& model, const ShardLayout& shards,
                                   const Optimizer& optimizer);

// Ranks along data have the same numbers: the first of them write.
bool writes_checkpoints(const Mesh& mesh, int rank);
// Whether a rank has a copy of its state on the host: one that saves in the background (background_saver.h), and on a
// GPU any that saves, restores or loads.
enum class Staging { kNo, kYes };
Staging staging_of(const TrainConfig& config, int rank);

// Of logits at a time on a GPU: products of thousands of rows, and a small part of its memory.
constexpr int64_t kGpuLogitsBytes = int64_t{256} << 20;
// What a GPU's backend needs beside the plan (GpuOptions): room for the largest fp32 matrix and for a chunk of logits, which bf16 products
// round first, for sums on their way to the host, and for the libraries: cuDNN's backward pass of all heads and sequences up to
// kGpuAttentionBytes, and of the smallest part of them beyond. Where that is too much, what is largest is our own kernels'.
constexpr size_t kGpuAttentionBytes = size_t{512} << 20;
size_t gpu_scratch_bytes(const TrainConfig& config);
// In how many parts cuDNN computes a layer's backward pass in that; 1 where it is not cuDNN's.
int64_t gpu_attention_parts(const TrainConfig& config);

// Of rank `rank` of the config's mesh. `threads` is the CPU backend's.
TrainingPlan plan_training(const TrainConfig& config, int32_t threads, Staging staging,
                           int32_t rank = 0);

}  // namespace muster::trainer
