// The memory plan of a rank: the plan of the transformer, with the state of the optimizer and the
// staging buffers. The preflight counts these bytes, and a run allocates them. A run that only
// evaluates has neither gradients, nor a state of the optimizer, nor saved activations.
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

// The plan and the optimizer that it is for. Without training, only the layout of checkpoints uses
// the optimizer.
struct TrainingPlan {
  TransformerPlan model;
  std::unique_ptr<Optimizer> optimizer;
  // The staging buffer: room for a copy of the parameters, followed by a copy of the optimizer's
  // state. nullopt: none.
  std::optional<BufferId> staging{};

  const MemoryPlan& memory() const { return model.memory; }
  // Returns the layout of the rank's checkpoints.
  CheckpointLayout checkpoint_layout() const;
};

// Returns the layout of the checkpoints of a rank with these shards and this optimizer.
CheckpointLayout checkpoint_layout(const ModelConfig& model, const ShardLayout& shards,
                                   const Optimizer& optimizer);

// Returns whether a rank writes checkpoints. Ranks that differ only along the data axis have the
// same state, and the first of them writes it.
bool is_checkpoint_writer(const Mesh& mesh, int rank);
// Whether a rank has staging buffers in host memory for a copy of its state.
enum class Staging { kNo, kYes };
// Returns kYes for ranks that save in the background (background_saver.h) and, with a GPU, for all
// ranks that save, restore or load parameters.
Staging staging_of(const TrainConfig& config, int rank);

// The bytes of a chunk of logits on a GPU: enough rows for efficient GEMMs, but a small part of the
// GPU's memory.
constexpr int64_t kGpuLogitsBytes = int64_t{256} << 20;
// The maximum bytes of workspace for the complete backward pass of attention by cuDNN (see
// gpu_scratch_bytes()).
constexpr size_t kGpuAttentionBytes = size_t{512} << 20;
// Returns the bytes of scratch memory that the backend of a GPU needs in addition to the plan
// (GpuOptions). They are used for:
//   - a bf16 copy of the largest fp32 matrix, which bf16 GEMMs need;
//   - sums that are copied to the host;
//   - the workspace of cuDNN's backward pass of attention. If all heads and sequences together need
//     more than kGpuAttentionBytes, the pass is divided into parts that need at most that; the
//     smallest possible part may need more. If even that part exceeds the limit of the scratch
//     memory, the built-in kernels compute the pass.
size_t gpu_scratch_bytes(const TrainConfig& config);
// Returns the number of parts in which cuDNN computes the backward pass of a layer's attention; 1
// if the built-in kernels compute it.
int64_t gpu_attention_parts(const TrainConfig& config);

// Return the layouts of the parameters of rank `rank` in the config's mesh that are trained, of
// those that are frozen, and of those that are stored in blocks.
ShardLayout shard_layout(const TrainConfig& config, const Mesh& mesh, int32_t rank);
ShardLayout frozen_layout(const TrainConfig& config, const Mesh& mesh, int32_t rank);
ShardLayout quantized_layout(const TrainConfig& config, const Mesh& mesh, int32_t rank);

// Returns the plan of rank `rank` in the config's mesh. `threads` is the number of threads of the
// CPU backend.
TrainingPlan plan_training(const TrainConfig& config, int32_t threads, Staging staging,
                           int32_t rank = 0);

}  // namespace muster::trainer
