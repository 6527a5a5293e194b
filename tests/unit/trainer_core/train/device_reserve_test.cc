// Figures of other people's libraries: that they are of the communicators which a mesh has.
#include "trainer_core/device_reserve.h"

#include <gtest/gtest.h>

#include "common/mesh.h"
#include "tests/unit/trainer_core/train/train_helpers.h"

namespace muster::trainer {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kCollective = 24 * 2 * 12 * kMiB, kPeer = 32 * 12 * kMiB;

TrainConfig on_axes(std::vector<std::pair<MeshAxis, int32_t>> axes) {
  TrainConfig config = tiny_config(1);
  for (const auto& [axis, degree] : axes) config.mesh.ici[static_cast<size_t>(axis)] = degree;
  return config;
}

TEST(DeviceReserve, NcclIsOfTheCommunicators) {
  EXPECT_EQ(nccl_bytes(tiny_config(1)), 0U);
  // Gathers and scatters of parameters, whatever the number of ranks; sums of gradients.
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kFsdp, 2}})), kCollective);
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kFsdp, 8}})), kCollective);
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kData, 2}})), kCollective);
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kData, 2}, {MeshAxis::kFsdp, 2}})), 2 * kCollective);
  // Rows of the stream, and parameters that tensor ranks all have.
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kTensor, 2}})), 2 * kCollective);
}

// Beside the parameters' gathers, which are along these axes, too.
TEST(DeviceReserve, PeersAreThoseWhoAreSentTo) {
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kSequence, 4}})), kCollective + 3 * kPeer);
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kContext, 2}})), kCollective + kPeer);
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kContext, 4}})), kCollective + 2 * kPeer);
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kPipeline, 2}})), kPeer);
  TrainConfig experts = on_axes({{MeshAxis::kExpert, 4}});
  experts.model.experts = {.count = 4, .per_token = 2, .mlp_dim = 8};
  EXPECT_EQ(nccl_bytes(experts), kCollective + 3 * kPeer);
}

TEST(DeviceReserve, GraphsAreOfTheLayersThatARankHas) {
  constexpr size_t kLayer = kGraphKernels * kGraphKernelBytes;
  TrainConfig config = tiny_config(1);
  EXPECT_EQ(graph_bytes(config), 2 * kLayer);
  EXPECT_EQ(graph_bytes(on_axes({{MeshAxis::kFsdp, 4}})), 2 * kLayer);
  // Of two stages the first has two micro-batches under way.
  TrainConfig stages = on_axes({{MeshAxis::kPipeline, 2}});
  stages.pipeline_microbatches = 4;
  EXPECT_EQ(graph_bytes(stages), 2 * kLayer);
  config.cuda_graphs = false;
  EXPECT_EQ(graph_bytes(config), 0U);
}

TEST(DeviceReserve, HasALine) {
  EXPECT_EQ(reserve_line({{"scratch", 64 * kMiB}, {"CUDA context", 512 * kMiB}}),
            "beside the plan on the GPU: 576.0 MiB (scratch 64.0, CUDA context 512.0)");
}

}  // namespace
}  // namespace muster::trainer
