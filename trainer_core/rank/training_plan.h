// The memory that a rank maps for training: the transformer's plan with the optimizer's state. The
// preflight counts these bytes, and a run allocates them.
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
  // The copy of the parameters, followed by the copy of the optimizer's state.
  std::optional<BufferId> staging{};

  const MemoryPlan& memory() const { return model.memory; }
  CheckpointLayout checkpoint_layout() const;
};

// The layout of a checkpoint of that model and that optimizer.
CheckpointLayout checkpoint_layout(const ModelConfig& model, const ShardLayout& shards,
                                   const Optimizer& optimizer);

// Whether the rank writes checkpoints: ranks along data have the same state, and the first writes
// it.
bool writes_checkpoints(const Mesh& mesh, int rank);
// Whether a rank has a copy of its state on the host: ranks that save in the background
// (background_saver.h), and on a GPU all ranks that save, restore or load.
enum class Staging { kNo, kYes };
Staging staging_of(const TrainConfig& config, int rank);

// The bytes of one chunk of logits on a GPU: enough rows for efficient GEMMs, and a small part of
// its memory.
constexpr int64_t kGpuLogitsBytes = int64_t{256} << 20;
// The bytes that a GPU's backend needs beside the plan (GpuOptions), for:
//   - the largest fp32 matrix and a chunk of logits, which bf16 GEMMs round first;
//   - sums on their way to the host;
//   - workspace of cuDNN's backward pass. If all heads and sequences need more than
//     kGpuAttentionBytes, the pass is split into parts that need at most that; the smallest part
//     may need more. If even the smallest part exceeds the limit of the whole scratch, the built-in
//     kernels compute the attention.
constexpr size_t kGpuAttentionBytes = size_t{512} << 20;
size_t gpu_scratch_bytes(const TrainConfig& config);
// Returns the number of parts in which cuDNN computes a layer's backward pass within
// gpu_scratch_bytes(); 1 if the built-in kernels compute it.
int64_t gpu_attention_parts(const TrainConfig& config);

// The layout of the parameters of rank `rank` of the config's mesh.
ShardLayout shard_layout(const TrainConfig& config, const Mesh& mesh, int32_t rank);

// Plans the training of rank `rank` of the config's mesh. `threads` is the CPU backend's.
TrainingPlan plan_training(const TrainConfig& config, int32_t threads, Staging staging,
                           int32_t rank = 0);

}  // namespace muster::trainer
