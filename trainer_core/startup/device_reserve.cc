#include "trainer_core/startup/device_reserve.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <tuple>
#include <utility>

#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/base/units.h"
#include "trainer_core/model/head_rows.h"
#include "trainer_core/rank/training_plan.h"

namespace muster::trainer {
namespace {

ShardLayout first_shards(const TrainConfig& config) {
  return shard_layout(config, mesh_of(config.mesh), /*rank=*/0);
}

// Returns the number of groups that share blocks (sharded_parameters.h); each group has its own
// communicator.
size_t sharing_groups(const TrainConfig& config) {
  std::set<GroupAxes> groups;
  for (const ShardLayout& shards :
       {first_shards(config), frozen_layout(config, mesh_of(config.mesh), /*rank=*/0),
        quantized_layout(config, mesh_of(config.mesh), /*rank=*/0)}) {
    for (const ParamBucket& bucket : shards.buckets())
      if (bucket.group_size > 1) groups.insert(bucket.group);
  }
  return groups.size();
}

// The number of captured forward and backward runs of one kind (Transformer::Piece).
struct RunCounts {
  size_t forward, backward;
};
// The kernels in the graphs of a run, plus one for each graph. docs/memory.md has the same figures.
struct RunKernels {
  size_t forward, backward;

  RunKernels& operator+=(const RunKernels& others) {
    forward += others.forward;
    backward += others.backward;
    return *this;
  }
  size_t in(const RunCounts& runs) const {
    return runs.forward * forward + runs.backward * backward;
  }
};
// A layer with biases whose weights are rounded to bf16 and whose forward is recomputed in the
// backward pass, with two kernels per GEMM.
constexpr RunKernels kLayer{20, 60};
// Additional kernels of a layer: with experts; with quantized GEMMs, whose operands are measured
// and rounded; and with exchanges inside the layer, which split it into several graphs.
constexpr RunKernels kExperts{12, 20}, kQuantized{36, 84}, kExchanges{6, 16};
// Kernels of each part of cuDNN's backward pass after the first.
constexpr size_t kAttentionPart = 4;
// Additional kernels of the adapters of a GEMM: for the block-diagonal matrix, and for a chunk of
// rows. The forward pass is recomputed, too.
constexpr RunKernels kAdapters{4, 14}, kAdapterChunk{8, 24};
// The kernels for one chunk of rows of the head.
constexpr RunKernels kHeadRows{6, 12};

bool splits_sequences(const Mesh& mesh) {
  return mesh.degree(MeshAxis::kSequence) > 1 || mesh.degree(MeshAxis::kContext) > 1;
}

// Returns the tokens of a micro-batch on a rank.
int64_t rank_tokens(const TrainConfig& config) {
  const Mesh mesh = mesh_of(config.mesh);
  return int64_t{config.micro_batch_sequences()} * config.max_target_length /
         mesh.degree(MeshAxis::kSequence) / mesh.degree(MeshAxis::kContext);
}

// Returns the number of a layer's GEMMs that have adapters.
size_t adapted_products(const LoraConfig& lora) {
  const auto has = [&](std::initializer_list<LoraTarget> targets) {
    return std::ranges::any_of(targets, [&](LoraTarget target) { return lora.adapts(target); });
  };
  size_t count = 0;
  for (const bool is_adapted :
       {has({LoraTarget::kQuery, LoraTarget::kKey, LoraTarget::kValue}), has({LoraTarget::kOut}),
        has({LoraTarget::kGate, LoraTarget::kUp}), has({LoraTarget::kDown})})
    if (is_adapted) ++count;
  return count;
}

RunKernels layer_kernels(const TrainConfig& config) {
  const Mesh mesh = mesh_of(config.mesh);
  RunKernels kernels = kLayer;
  if (config.model.experts.count > 1) kernels += kExperts;
  if (config.model.quantization.enabled()) kernels += kQuantized;
  const int64_t chunks = (rank_tokens(config) + kAdapterRows - 1) / kAdapterRows;
  for (size_t i = 0; i < adapted_products(config.model.lora); ++i) {
    kernels += kAdapters;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) kernels += kAdapterChunk;
  }
  if (splits_sequences(mesh) || mesh.degree(MeshAxis::kTensor) > 1) kernels += kExchanges;
  // If ranks split sequences, attention is part of an exchange and therefore not in a graph.
  if (!splits_sequences(mesh))
    kernels.backward += kAttentionPart * static_cast<size_t>(gpu_attention_parts(config) - 1);
  return kernels;
}

RunKernels head_kernels(const TrainConfig& config) {
  const Mesh mesh = mesh_of(config.mesh);
  const int64_t batch = config.micro_batch_sequences(), tokens = rank_tokens(config);
  const int64_t rows =
      head_rows(largest_share(config.model.vocab_size, mesh.degree(MeshAxis::kTensor)), tokens,
                batch, kGpuLogitsBytes);
  const auto times = static_cast<size_t>((tokens + rows - 1) / rows);
  return {times * kHeadRows.forward, times * kHeadRows.backward};
}

// Returns whether micro-batches add to the gradients of earlier micro-batches of the step. If not,
// each micro-batch begins a new gradient, which is reduce-scattered
// (ShardedParameters::begin_gradient).
bool accumulates_gradients(const TrainConfig& config) {
  const ShardLayout shards = first_shards(config);
  for (size_t block = 0; block < shards.blocks().size(); ++block)
    if (!shards.gathers(block) || shards.is_of_both_ends(block)) return true;
  return config.zero_stage == 1;
}

// Counts the different captured runs of a stage's chunks from `first` on. There is a forward run
// for each slot that a chunk uses. Backward runs that begin a gradient differ from those that add
// to it.
RunCounts runs_of(const PipelineShape& pipeline, int32_t stage, int32_t first, bool adds) {
  std::set<std::pair<int32_t, int32_t>> forward;
  std::set<std::tuple<int32_t, int32_t, bool>> backward;
  for (const PipelinePass& pass : pipeline_schedule(pipeline, stage)) {
    if (pass.chunk < first) continue;
    if (pass.kind == PassKind::kForward) {
      forward.emplace(pass.chunk, pass.slot);
    } else {
      backward.emplace(pass.chunk, pass.slot, adds && pass.micro_batch > 0);
    }
  }
  return {forward.size(), backward.size()};
}

}  // namespace

size_t sum_of(std::span<const DeviceReserve> reserves) {
  size_t bytes = 0;
  for (const DeviceReserve& reserve : reserves) bytes += reserve.bytes;
  return bytes;
}

size_t nccl_bytes(const TrainConfig& config) {
  const Mesh mesh = mesh_of(config.mesh);
  const auto others = [&](MeshAxis axis) { return static_cast<size_t>(mesh.degree(axis)) - 1; };
  const bool has_experts = config.model.experts.count > 1;
  const size_t sharers =
      others(MeshAxis::kTensor) + others(MeshAxis::kSequence) + others(MeshAxis::kContext);
  size_t collectives = sharing_groups(config);
  if (others(MeshAxis::kTensor) > 0) ++collectives;
  if (others(MeshAxis::kData) > 0) ++collectives;
  if (has_experts && sharers > 0) ++collectives;  // the router's logits
  // All-to-all is used among the ranks of heads and of experts, point-to-point between adjacent
  // ranks of the ring and of the pipeline.
  constexpr size_t kInterleaved = 2;
  const size_t peers = others(MeshAxis::kSequence) + (has_experts ? others(MeshAxis::kExpert) : 0) +
                       std::min(others(MeshAxis::kContext), kInterleaved) +
                       std::min(others(MeshAxis::kPipeline), kInterleaved);
  return (collectives * kNcclChannels * kNcclConnections + peers * kNcclPeerChannels) *
         kNcclConnectionBytes;
}

size_t graph_bytes(const TrainConfig& config) {
  if (!config.cuda_graphs) return 0;
  const PipelineShape pipeline = pipeline_shape(config);
  const auto layers = static_cast<size_t>(config.model.num_layers / pipeline.virtual_stages());
  const bool adds = accumulates_gradients(config);
  RunCounts of_layer = runs_of(pipeline, /*stage=*/0, /*first=*/0, adds);
  RunCounts of_head = runs_of(pipeline, pipeline.stages - 1, pipeline.chunks - 1, adds);
  of_head.forward = 0;  // only evaluations run it forward alone, in one slot
  if (config.eval.enabled()) {
    of_layer.forward += static_cast<size_t>(pipeline.chunks);
    of_head.forward = 1;
  }
  return (layers * layer_kernels(config).in(of_layer) + head_kernels(config).in(of_head)) *
         kGraphKernelBytes;
}

std::string reserve_line(const std::vector<DeviceReserve>& reserves) {
  std::vector<std::string> shares;
  for (const auto& [name, bytes] : reserves)
    shares.push_back(absl::StrFormat("%s %.1f", av(name), static_cast<double>(bytes) / kMiB));
  return absl::StrFormat("beside the plan on the GPU: %.1f MiB (%s)",
                         static_cast<double>(sum_of(reserves)) / kMiB, absl::StrJoin(shares, ", "));
}

}  // namespace muster::trainer
