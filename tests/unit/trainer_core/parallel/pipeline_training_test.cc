// A pipeline of any shape trains as one rank does.
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>

#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/parallel/mesh_trainer.h"
#include "trainer_core/parallel/pipeline_schedule.h"

namespace muster::trainer {
namespace {

constexpr int32_t kSequences = 8;  // of a step, over all ranks
constexpr int32_t kLength = 8;

struct Shape {
  int32_t stages = 1;
  int32_t chunks = 1;
  int32_t micro_batches = 1;
  std::vector<std::pair<MeshAxis, int32_t>> other_axes = {};
  int32_t zero_stage = 3;
};

TrainConfig config_of(const ModelConfig& model, const Shape& shape) {
  TrainConfig config;
  config.model = model;
  config.model.num_layers = 4;
  // Rows this narrow are now and then near 0, which multiplies roundings.
  config.model.norm_epsilon = 0.1;
  config.steps = 20;
  config.optimizer.learning_rate = 3e-3;
  // Some gradients, as those of keys' biases, are nothing but what rounding leaves.
  config.optimizer.eps = 1e-5;
  config.optimizer.schedule_steps = 20;
  config.optimizer.warmup_steps = 2;
  config.mesh.ici[static_cast<size_t>(MeshAxis::kPipeline)] = shape.stages;
  for (const auto& [axis, degree] : shape.other_axes)
    config.mesh.ici[static_cast<size_t>(axis)] = degree;
  config.zero_stage = shape.zero_stage;
  config.pipeline_repeats = shape.chunks;
  config.pipeline_microbatches = shape.micro_batches;
  config.per_device_batch_size = kSequences / batch_slice(mesh_of(config.mesh), 0).count;
  config.max_target_length = kLength;
  if (config.model.learns_positions()) config.model.trainable_position_size = kLength;
  return config;
}

// Of each model: what makes its step special.
struct Case {
  const char* name;
  ModelConfig (*model)();
  std::function<void(TrainConfig& config)> change;
};

const Case kCases[] = {
    {"llama", sharded_llama, [](TrainConfig&) {}},
    {"llama_biases_dropout", sharded_llama,
     [](TrainConfig& config) {
       config.model.qkv_bias = config.model.out_bias = config.model.mlp_bias = true;
       config.model.dropout_rate = config.model.input_dropout_rate = 0.2;
       config.remat_policy = RematPolicy::kNone;
     }},
    {"parallel_tied_offloaded", sharded_llama,
     [](TrainConfig& config) {
       config.model.parallel_block = config.model.logits_via_embedding = true;
       config.model.norm_gain_offset = 1;
       config.model.scale_embeddings = true;
       config.remat_policy = RematPolicy::kMinimalOffloaded;
     }},
    {"gpt", sharded_gpt, [](TrainConfig& config) { config.remat_policy = RematPolicy::kMinimal; }},
    {"glam", sharded_glam,
     [](TrainConfig& config) {
       config.model.experts.balance_weight = 0.1;
       config.model.experts.capacity_factor = 1;
       config.remat_policy = RematPolicy::kMinimal;
     }},
    {"glam_offloaded", sharded_glam,
     [](TrainConfig& config) {
       config.model.experts.balance_weight = 0.1;
       config.remat_policy = RematPolicy::kMinimalOffloaded;
     }},
};

const Shape kShapes[] = {
    {2, 1, 4},
    {4, 1, 2},  // fewer micro-batches than stages
    {2, 2, 4},
    {2, 2, 2, {{MeshAxis::kTensor, 2}}},
    {2, 1, 2, {{MeshAxis::kFsdp, 2}}},
    {2, 2, 2, {{MeshAxis::kData, 2}, {MeshAxis::kFsdp, 2}}, 2},
    {4, 1, 4, {{MeshAxis::kFsdp, 2}}, 1},
    {2, 1, 2, {{MeshAxis::kData, 2}, {MeshAxis::kTensor, 2}}},
};

class PipelineTraining : public testing::TestWithParam<Case> {
 protected:
  static TrainConfig config(const Shape& shape) {
    TrainConfig config = config_of(GetParam().model(), shape);
    GetParam().change(config);
    return config;
  }
};

TEST_P(PipelineTraining, IsThatOfOneRank) {
  const MeshRun alone = MeshTrainer::run(config({}));
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  ASSERT_GT(std::abs(alone.steps.back().loss / alone.steps.front().loss - 1), 1e-3)
      << "parameters do not change";
  for (const Shape& shape : kShapes) {
    const TrainConfig staged = config(shape);
    ASSERT_TRUE(validate_on_mesh(staged).ok()) << validate_on_mesh(staged);
    expect_same_training(
        MeshTrainer::run(staged), alone,
        absl::StrCat(mesh_of(staged.mesh).to_string(), " repeats=", shape.chunks,
                     " microbatches=", shape.micro_batches, " zero_stage=", shape.zero_stage));
    ASSERT_FALSE(HasFatalFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PipelineTraining, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace muster::trainer
