#include "trainer_core/device_reserve.h"

#include <algorithm>
#include <set>
#include <utility>

#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "common/absl_view.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/training_plan.h"

namespace muster::trainer {
namespace {

// Along which axes blocks are shared (sharded_parameters.h), each by a communicator of its own.
size_t sharing_groups(const TrainConfig& config, const Mesh& mesh) {
  const ShardLayout shards = ShardLayout::of(
      config.model, mesh, /*rank=*/0, config.activation_type(), pipeline_shape(config).chunks);
  std::set<GroupAxes> groups;
  for (const ParamBucket& bucket : shards.buckets())
    if (bucket.group_size > 1) groups.insert(bucket.group);
  return groups.size();
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
  size_t collectives = sharing_groups(config, mesh);
  if (others(MeshAxis::kTensor) > 0) ++collectives;
  if (others(MeshAxis::kData) > 0) ++collectives;
  if (has_experts && sharers > 0) ++collectives;  // the router's logits
  // Heads or rows of experts to each of the others, the ring's blocks and a pipeline's stream to two neighbours.
  constexpr size_t kNeighbours = 2;
  const size_t peers = others(MeshAxis::kSequence) + (has_experts ? others(MeshAxis::kExpert) : 0) +
                       std::min(others(MeshAxis::kContext), kNeighbours) +
                       std::min(others(MeshAxis::kPipeline), kNeighbours);
  return (collectives * kNcclChannels * kNcclConnections + peers * kNcclPeerChannels) *
         kNcclConnectionBytes;
}

size_t graph_bytes(const TrainConfig& config) {
  if (!config.cuda_graphs) return 0;
  const PipelineShape pipeline = pipeline_shape(config);
  // Each run of layers in each of the slots that it is ever in.
  std::set<std::pair<int32_t, int32_t>> runs = {{0, 0}};
  if (pipeline.stages > 1) {
    for (const PipelinePass& pass : pipeline_schedule(pipeline, /*stage=*/0))
      runs.emplace(pass.chunk, pass.slot);
  }
  const int32_t layers = config.model.num_layers / pipeline.virtual_stages();
  return static_cast<size_t>(layers) * runs.size() * kGraphKernels * kGraphKernelBytes;
}

std::string reserve_line(const std::vector<DeviceReserve>& reserves) {
  constexpr double kMiB = 1 << 20;
  std::vector<std::string> shares;
  for (const auto& [name, bytes] : reserves)
    shares.push_back(absl::StrFormat("%s %.1f", av(name), static_cast<double>(bytes) / kMiB));
  return absl::StrFormat("beside the plan on the GPU: %.1f MiB (%s)",
                         static_cast<double>(sum_of(reserves)) / kMiB, absl::StrJoin(shares, ", "));
}

}  // namespace muster::trainer
