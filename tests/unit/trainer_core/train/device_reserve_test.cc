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
  // Gathers and scatters of parameters, whatever the number of ranks.
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kFsdp, 2}})), kCollective);
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kFsdp, 8}})), kCollective);
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kData, 2}})), kCollective);
  // Rows, and the gradients of what tensor ranks all have.
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kTensor, 2}})) % kCollective, 0U);
  EXPECT_GE(nccl_bytes(on_axes({{MeshAxis::kTensor, 2}})), kCollective);
  // Messages to neighbours.
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kPipeline, 2}})) % kCollective, kPeer);
}

TEST(DeviceReserve, PeersAreThoseWhoAreSentTo) {
  const auto peers = [](const TrainConfig& config) {
    return nccl_bytes(config) % kCollective / kPeer;
  };
  EXPECT_EQ(peers(on_axes({{MeshAxis::kContext, 2}})), 1U);
  TrainConfig experts = on_axes({{MeshAxis::kExpert, 2}});
  const size_t without = nccl_bytes(experts);
  experts.model.experts = {.count = 4, .per_token = 2, .mlp_dim = 8};
  EXPECT_GT(nccl_bytes(experts), without);
}

TEST(DeviceReserve, HasALine) {
  EXPECT_EQ(reserve_line({{"scratch", 64 * kMiB}, {"CUDA context", 512 * kMiB}}),
            "beside the plan on the GPU: 576.0 MiB (scratch 64.0, CUDA context 512.0)");
}

}  // namespace
}  // namespace muster::trainer
