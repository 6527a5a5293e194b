// Reserves that depend on libraries: they must match the communicators and graphs of the config's
// mesh.
#include "trainer_core/startup/device_reserve.h"

#include <gtest/gtest.h>

#include "common/job/mesh.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/rank/training_plan.h"

namespace muster::trainer {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kCollective = 24 * 2 * 12 * kMiB, kPeer = 32 * 12 * kMiB;

TrainConfig on_axes(std::vector<std::pair<MeshAxis, int32_t>> axes) {
  TrainConfig config = tiny_config(1);
  for (const auto& [axis, degree] : axes) config.mesh.ici[static_cast<size_t>(axis)] = degree;
  return config;
}

TEST(DeviceReserve, NcclBytesFollowTheCommunicators) {
  EXPECT_EQ(nccl_bytes(tiny_config(1)), 0U);
  // All-gathers and reduce-scatters of parameters, for any number of ranks; all-reduces of
  // gradients.
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kFsdp, 2}})), kCollective);
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kFsdp, 8}})), kCollective);
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kData, 2}})), kCollective);
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kData, 2}, {MeshAxis::kFsdp, 2}})), 2 * kCollective);
  // Rows of the stream, and parameters that all tensor ranks have.
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kTensor, 2}})), 2 * kCollective);
}

// In addition to the parameters' gathers along the same axes.
TEST(DeviceReserve, NcclBytesIncludePointToPointPeers) {
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kSequence, 4}})), kCollective + 3 * kPeer);
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kContext, 2}})), kCollective + kPeer);
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kContext, 4}})), kCollective + 2 * kPeer);
  EXPECT_EQ(nccl_bytes(on_axes({{MeshAxis::kPipeline, 2}})), kPeer);
  TrainConfig experts = on_axes({{MeshAxis::kExpert, 4}});
  experts.model.experts = {.count = 4, .per_token = 2, .mlp_dim = 8};
  EXPECT_EQ(nccl_bytes(experts), kCollective + 3 * kPeer);
}

TEST(DeviceReserve, GraphBytesFollowTheRanksLayers) {
  TrainConfig config = tiny_config(1);
  const auto with_layers = [&](int32_t layers) {
    TrainConfig deep = config;
    deep.model.num_layers = layers;
    return graph_bytes(deep);
  };
  const size_t two_layers = with_layers(4) - with_layers(2);
  EXPECT_EQ(with_layers(6) - with_layers(4), two_layers);
  EXPECT_GT(with_layers(2), two_layers) << "and of the head";
  EXPECT_EQ(graph_bytes(on_axes({{MeshAxis::kFsdp, 4}})), graph_bytes(config));
  config.cuda_graphs = false;
  EXPECT_EQ(graph_bytes(config), 0U);
}

// Frozen weights are gathered by the groups that gather trained ones elsewhere.
TEST(DeviceReserve, AdaptersCount) {
  TrainConfig config = on_axes({{MeshAxis::kTensor, 2}});
  const size_t nccl = nccl_bytes(config), all = graph_bytes(config);
  config.model.lora = {.rank = 2, .alpha = 2, .targets = {"down_proj"}};
  EXPECT_EQ(nccl_bytes(config), nccl);
  const size_t one = graph_bytes(config);
  EXPECT_GT(one, all);
  config.model.lora.targets = {"q_proj", "k_proj", "down_proj"};
  EXPECT_EQ(graph_bytes(config) - all, 2 * (one - all)) << "q and k are one GEMM";
  const size_t two = graph_bytes(config);
  config.max_target_length = 4096;
  EXPECT_GT(graph_bytes(config), two);
}

TEST(DeviceReserve, GraphBytesCountEachKindOfPass) {
  const TrainConfig config = tiny_config(1);
  TrainConfig evaluated = config;
  evaluated.eval.interval = 1;
  TrainConfig accumulated = config;
  accumulated.gradient_accumulation_steps = 4;
  EXPECT_GT(graph_bytes(evaluated), graph_bytes(config));
  EXPECT_GT(graph_bytes(accumulated), graph_bytes(evaluated)) << "a backward pass has more";
  // A scattered gradient begins in each micro-batch, except with zero_stage 1.
  TrainConfig sharded = on_axes({{MeshAxis::kFsdp, 2}});
  sharded.gradient_accumulation_steps = 4;
  EXPECT_EQ(graph_bytes(sharded), graph_bytes(config));
  sharded.zero_stage = 1;
  EXPECT_EQ(graph_bytes(sharded), graph_bytes(accumulated));
  // The first of two stages has one of two layers and two micro-batches in flight; one of these
  // begins gradients.
  TrainConfig stages = on_axes({{MeshAxis::kPipeline, 2}});
  stages.pipeline_microbatches = 4;
  EXPECT_GT(graph_bytes(stages), graph_bytes(config));
  EXPECT_LT(graph_bytes(stages), graph_bytes(accumulated));
}

TEST(DeviceReserve, GraphBytesOfTheHeadFollowTheLogitsRows) {
  const auto with_length = [](int32_t length) {
    TrainConfig config = tiny_config(1);
    config.per_device_batch_size = 1;
    config.model.vocab_size = 1 << 16;  // 1024 rows are 256 MiB
    config.max_target_length = length;
    return graph_bytes(config);
  };
  EXPECT_EQ(with_length(1024), with_length(8));
  const size_t rows = with_length(2048) - with_length(1024);
  EXPECT_GT(rows, 0U);
  EXPECT_EQ(with_length(4096) - with_length(2048), 2 * rows);
}

TEST(DeviceReserve, GraphBytesIncludeAttentionParts) {
  TrainConfig config = tiny_config(1);
  config.dtype = ComputeType::kBfloat16;
  config.per_device_batch_size = 2;
  config.max_target_length = 4096;
  config.model.num_query_heads = config.model.num_kv_heads = 32;  // 32 MiB of scores per head
  const size_t in_parts = graph_bytes(config);
  EXPECT_EQ(gpu_attention_parts(config), 4);
  config.dtype = ComputeType::kFloat32;
  EXPECT_EQ(gpu_attention_parts(config), 1) << "built-in kernels";
  EXPECT_GT(in_parts, graph_bytes(config));
}

TEST(DeviceReserve, TheLineListsTheReserves) {
  EXPECT_EQ(reserve_line({{"scratch", 64 * kMiB}, {"CUDA context", 512 * kMiB}}),
            "beside the plan on the GPU: 576.0 MiB (scratch 64.0, CUDA context 512.0)");
}

}  // namespace
}  // namespace muster::trainer
