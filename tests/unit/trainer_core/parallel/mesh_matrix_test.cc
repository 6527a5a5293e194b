// Every mesh of 8 ranks trains as one rank does, and none of them can come to a deadlock.
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <absl/strings/str_cat.h>

#include "tests/unit/sanitized.h"
#include "tests/unit/trainer_core/comm/strict_transport.h"
#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/parallel/mesh_configs.h"
#include "tests/unit/trainer_core/parallel/mesh_trainer.h"
#include "trainer_core/comm/transport_group.h"

namespace muster::trainer {
namespace {

constexpr int kParts = 4;  // shards of the list of meshes, which run in parallel
constexpr int kStride = kSanitized ? 8 * kParts : kParts;

struct Model {
  const char* name;
  TrainConfig (*config)(const MeshShape& shape);
  // A model runs on the meshes first, first + every, first + 2 * every, …
  size_t first = 0;
  size_t every = 1;
};

// GQA with fewer KV heads than some meshes have tensor ranks, masks that depend on where a number
// is, and two micro-batches.
TrainConfig dense(const MeshShape& shape) {
  TrainConfig config = config_of(sharded_llama(), shape);
  config.model.dropout_rate = 0.1;
  config.gradient_accumulation_steps = 2;
  return config;
}

// Experts that drop tokens, and tied embeddings.
TrainConfig with_experts(const MeshShape& shape) {
  TrainConfig config = config_of(sharded_glam(), shape);
  config.model.experts.balance_weight = 0.1;
  config.model.experts.capacity_factor = 1;
  return config;
}

// Frozen weights with adapters of all projections, and masks of the adapters' inputs.
TrainConfig with_adapters(const MeshShape& shape) {
  TrainConfig config = dense(shape);
  config.model.lora = {.rank = 3,
                       .alpha = 6,
                       .dropout = 0.2,
                       .targets = lora_targets(config.model, LoraLayers::kAll)};
  return config;
}

// Adapters of attention and of the layers without experts, and a frozen tied embedding.
TrainConfig with_adapted_experts(const MeshShape& shape) {
  TrainConfig config = with_experts(shape);
  config.model.lora = {
      .rank = 2, .alpha = 3, .dropout = 0, .targets = lora_targets(config.model, LoraLayers::kAll)};
  return config;
}

// Frozen matrices in blocks, of which each rank of up to four along tensor has whole ones.
TrainConfig with_blocks(const MeshShape& shape, const ModelConfig& model, WeightType type) {
  TrainConfig config = config_of(model, shape);
  config.model.emb_dim = 32;
  config.model.num_query_heads = 4;
  config.model.head_dim = 64;
  config.model.mlp_dim = 256;
  config.model.experts.mlp_dim = 256;
  config.model.lora = {.rank = 3,
                       .alpha = 6,
                       .targets = lora_targets(config.model, LoraLayers::kAll),
                       .weight_type = type};
  return config;
}
TrainConfig with_nf4(const MeshShape& shape) {
  return with_blocks(shape, sharded_llama(), WeightType::kNf4);
}
TrainConfig with_int8_experts(const MeshShape& shape) {
  return with_blocks(shape, sharded_glam(), WeightType::kInt8);
}

// Two models differ from `dense`, and two from `experts`, in adapters and weights alone. Each mesh
// has one of the two.
const std::array kModels = {Model{"dense", dense},
                            Model{"experts", with_experts},
                            Model{"adapters", with_adapters, 0, 2},
                            Model{"adapted_experts", with_adapted_experts, 0, 2},
                            Model{"nf4", with_nf4, 1, 2},
                            Model{"int8_experts", with_int8_experts, 1, 2}};

TrainConfig config_on(const Model& model, const MeshShape& shape) {
  TrainConfig config = model.config(shape);
  const int32_t stages = mesh_of(shape).degree(MeshAxis::kPipeline);
  config.model.num_layers = std::max(4, stages);
  if (stages == 1) return config;
  config.pipeline_repeats = config.model.num_layers / stages;  // two stages are interleaved
  config.pipeline_microbatches = std::min(stages, config.per_device_batch_size);
  return config;
}

std::vector<MeshShape> allowed_meshes(const Model& model) {
  std::vector<MeshShape> meshes;
  for (const Degrees& degrees : factorisations(kMeshRanks)) {
    const MeshShape shape{.ici = degrees, .dcn = MeshShape().dcn};
    if (validate_mesh(shape).ok() && validate_on_mesh(config_on(model, shape)).ok())
      meshes.push_back(shape);
  }
  return meshes;
}

const MeshRun& alone(const Model& model, int32_t layers) {
  static std::map<std::pair<std::string, int32_t>, MeshRun> runs;
  const auto [run, is_new] = runs.try_emplace({model.name, layers});
  if (is_new) {
    TrainConfig config = model.config({});
    config.model.num_layers = layers;
    run->second = MeshTrainer::run(config);
  }
  return run->second;
}

class MeshMatrix : public testing::TestWithParam<std::tuple<Model, int>> {};

TEST_P(MeshMatrix, IsTheTrainingOfOneRank) {
  const auto& [model, part] = GetParam();
  const std::vector<MeshShape> meshes = allowed_meshes(model);
  ASSERT_GE(meshes.size(), kParts * model.every);
  for (size_t i = model.first + model.every * static_cast<size_t>(part); i < meshes.size();
       i += model.every * kStride) {
    const TrainConfig config = config_on(model, meshes[i]);
    const std::string mesh = mesh_of(meshes[i]).to_string();
    MessageLog log;
    const MeshRun run =
        MeshTrainer::run(config, nullptr, [&](std::shared_ptr<Transport> transport) {
          return std::make_shared<StrictTransport>(std::move(transport), log);
        });
    expect_same_training(run, alone(model, config.model.num_layers), mesh);
    ASSERT_FALSE(HasFatalFailure());
    SCOPED_TRACE(mesh);
    log.expect_that_all_is_met();
  }
}

// The matrix relies on this: two ranks that both send before either receives must deadlock.
TEST(StrictTransport, MessagesThatCrossAreADeadlock) {
  const LocalWorld world(2, std::chrono::milliseconds(300));
  MessageLog log;
  std::atomic<int> failures{0};
  const auto talk = [&](int rank) {
    const auto group =
        make_world_group(std::make_shared<StrictTransport>(world.join(rank), log), "pair", nullptr);
    std::array<float, 4> numbers{};
    absl::Status status = group->send(BufferView(numbers), 1 - rank, "out");
    status.Update(group->recv(BufferView(numbers), 1 - rank, "in"));
    if (!status.ok()) ++failures;
  };
  std::thread other([&] { talk(1); });
  talk(0);
  other.join();
  EXPECT_EQ(failures, 2);
}

INSTANTIATE_TEST_SUITE_P(Models, MeshMatrix,
                         testing::Combine(testing::ValuesIn(kModels), testing::Range(0, kParts)),
                         [](const auto& test) {
                           return absl::StrCat(std::get<0>(test.param).name, "_",
                                               std::get<1>(test.param));
                         });

}  // namespace
}  // namespace muster::trainer
