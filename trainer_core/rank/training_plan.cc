#include "trainer_core/rank/training_plan.h"

#include <algorithm>
#include <utility>

#include "trainer_core/base/bf16.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/model/plan_builder.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {

CheckpointLayout checkpoint_layout(const ModelConfig& model, const ShardLayout& shards,
                                   const Optimizer& optimizer) {
  return {.params = model_tensors(shards, model),
          .optimizer = std::string(optimizer.name()),
          .state = optimizer.state()};
}

CheckpointLayout TrainingPlan::checkpoint_layout() const {
  return trainer::checkpoint_layout(model.model, model.sharding.layout, *optimizer);
}

bool is_checkpoint_writer(const Mesh& mesh, int rank) {
  return mesh.coordinate(rank)[static_cast<size_t>(MeshAxis::kData)] == 0;
}

Staging staging_of(const TrainConfig& config, int rank) {
  const bool in_background = config.enable_checkpointing && config.async_checkpointing &&
                             is_checkpoint_writer(mesh_of(config.mesh), rank);
  // Restored or loaded parameters also go to a device through the staging buffers.
  const bool apart = config.hardware == Hardware::kGpu &&
                     (config.enable_checkpointing || !config.load_parameters_path.empty());
  return in_background || apart ? Staging::kYes : Staging::kNo;
}

namespace {

// Returns the attention shape that cuDNN may compute; nullopt if the built-in kernels compute it.
std::optional<AttentionShape> library_attention(const TrainConfig& config) {
  const Mesh mesh = mesh_of(config.mesh);
  // The built-in kernels compute the blocks of ring attention and packed sequences.
  if (mesh.degree(MeshAxis::kContext) > 1 || config.packed() ||
      config.dtype != ComputeType::kBfloat16)
    return std::nullopt;
  const ModelConfig& model = config.model;
  const int tensor = mesh.degree(MeshAxis::kTensor), sequence = mesh.degree(MeshAxis::kSequence);
  const AttentionShape shape{
      .batch = config.micro_batch_sequences(),
      .seq_len = config.max_target_length,
      .heads = largest_share(model.num_query_heads, tensor) / sequence,
      .kv_heads = std::max<int64_t>(1, largest_share(model.num_kv_heads, tensor) / sequence),
      .head_dim = model.head_dim,
      .soft_cap = model.attn_logits_soft_cap,
      .extra_zero = model.attention_extra_zero,
      .buckets = model.relative_buckets};
  return shape.is_plain() ? std::optional(shape) : std::nullopt;
}

// Returns the workspace of cuDNN's backward pass of attention.
size_t gpu_attention_bytes(const TrainConfig& config) {
  const auto shape = library_attention(config);
  if (!shape) return 0;
  const size_t part = cudnn_attention_backward_bytes(smallest_attention_part(*shape));
  return std::min(cudnn_attention_backward_bytes(*shape), std::max(part, kGpuAttentionBytes));
}

}  // namespace

size_t gpu_scratch_bytes(const TrainConfig& config) {
  constexpr size_t kSumsAndLibrary = size_t{64} << 20;
  constexpr size_t kScratchMax = size_t{2} << 30;
  if (config.dtype != ComputeType::kBfloat16) return kSumsAndLibrary;
  const ModelConfig& model = config.model;
  const int64_t tensor = mesh_of(config.mesh).degree(MeshAxis::kTensor);
  const int64_t qkv = (model.num_query_heads + 2 * model.num_kv_heads) * int64_t{model.head_dim};
  const int64_t mlp = (model.gated_mlp ? 2 : 1) * int64_t{model.mlp_dim};
  const int64_t rows = std::max({qkv, mlp, int64_t{model.vocab_size}});
  const auto matrix =
      static_cast<size_t>(largest_share(rows, static_cast<int>(tensor)) * model.emb_dim) *
      sizeof(Bf16);
  const size_t attention = gpu_attention_bytes(config);
  // The built-in kernels, which need no workspace, compute a part that does not fit.
  const size_t room = kScratchMax - kSumsAndLibrary;
  return std::min(std::max(matrix, attention <= room ? attention : 0), room) + kSumsAndLibrary;
}

int64_t gpu_attention_parts(const TrainConfig& config) {
  const auto shape = library_attention(config);
  if (!shape) return 1;
  const size_t room = gpu_scratch_bytes(config);
  const AttentionPart whole{shape->batch, shape->kv_heads};
  for (std::optional part = whole; part; part = smaller_part(whole, *part)) {
    AttentionShape computed = *shape;
    computed.batch = part->sequences;
    computed.kv_heads = part->key_heads;
    computed.heads = part->key_heads * (shape->heads / shape->kv_heads);
    if (cudnn_attention_backward_bytes(computed) <= room)
      return whole.sequences / part->sequences * (whole.key_heads / part->key_heads);
  }
  return 1;
}

ShardLayout shard_layout(const TrainConfig& config, const Mesh& mesh, int32_t rank) {
  return ShardLayout::of(config.model, mesh, rank, config.activation_type(),
                         pipeline_shape(config).chunks, config.weight_type());
}

ShardLayout frozen_layout(const TrainConfig& config, const Mesh& mesh, int32_t rank) {
  return ShardLayout::of(config.model, mesh, rank, config.activation_type(),
                         pipeline_shape(config).chunks, config.frozen_type(), ParamPart::kFrozen);
}

ShardLayout quantized_layout(const TrainConfig& config, const Mesh& mesh, int32_t rank) {
  return ShardLayout::of(config.model, mesh, rank, config.activation_type(),
                         pipeline_shape(config).chunks, DType::kI8, ParamPart::kQuantized);
}

TrainingPlan plan_training(const TrainConfig& config, int32_t threads, Staging staging,
                           int32_t rank) {
  const Mesh mesh = mesh_of(config.mesh);
  const PipelineShape pipeline = pipeline_shape(config);
  RankPart part = RankPart::of(mesh, rank);
  part.micro_batches = batch_slice(mesh, rank).count * config.micro_batches();
  if (config.hardware == Hardware::kGpu) part.logits_bytes = kGpuLogitsBytes;
  const bool training = !config.only_evaluates();
  if (!part.pipeline.has_all_layers()) {
    part.pipeline.chunks = pipeline.chunks;
    // A forward pass without a backward pass keeps no activations.
    part.pipeline.slots =
        training ? activation_slots(pipeline, part.pipeline.stage.index) : int32_t{1};
  }
  const Sharding sharding{shard_layout(config, mesh, rank),
                          frozen_layout(config, mesh, rank),
                          quantized_layout(config, mesh, rank),
                          config.zero_stage,
                          part,
                          config.dpo.enabled};
  auto optimizer = Optimizer::make(config.optimizer, sharding.layout);
  TransformerPlan model =
      build_transformer_plan(config.model, config.micro_batch_sequences(), config.max_target_length,
                             config.activation_type(), config.layer_placements(), training, threads,
                             optimizer->state_elements(), config.packed(), sharding);
  TrainingPlan plan{std::move(model), std::move(optimizer)};
  if (staging == Staging::kYes) {
    const int64_t elements = plan.model.stored_floats() + scaling_elements(config.model) +
                             (training ? plan.optimizer->state_elements() : 0);
    plan.model.memory.begin_reserved_host();
    plan.staging = plan.model.memory.add("checkpoint staging", MemoryCategory::kCheckpoint,
                                         static_cast<size_t>(elements) * sizeof(float));
  }
  return plan;
}

}  // namespace muster::trainer
