// A pipeline of any shape trains as one rank does.
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>

#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/parallel/mesh_configs.h"
#include "tests/unit/trainer_core/parallel/mesh_trainer.h"
#include "trainer_core/parallel/pipeline_schedule.h"

namespace muster::trainer {
namespace {

constexpr int32_t kStageLength = 8;

struct Shape {
  int32_t stages = 1;
  int32_t chunks = 1;
  int32_t micro_batches = 1;
  std::vector<std::pair<MeshAxis, int32_t>> other_axes = {};
  int32_t zero_stage = 3;
};

TrainConfig staged_config(const ModelConfig& model, const Shape& shape) {
  MeshShape mesh;
  mesh.ici[static_cast<size_t>(MeshAxis::kPipeline)] = shape.stages;
  for (const auto& [axis, degree] : shape.other_axes) mesh.ici[static_cast<size_t>(axis)] = degree;
  TrainConfig config = config_of(model, mesh, kStageLength);
  config.model.num_layers = 4;
  config.zero_stage = shape.zero_stage;
  config.pipeline_repeats = shape.chunks;
  config.pipeline_microbatches = shape.micro_batches;
  return config;
}

const MeshCase kPipelineCases[] = {
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
    {2, 2, 2, {{MeshAxis::kContext, 2}}},
    {2, 1, 4, {{MeshAxis::kSequence, 2}, {MeshAxis::kTensor, 2}}},
    {2, 1, 2, {{MeshAxis::kExpert, 4}}},
};

class PipelineTraining : public testing::TestWithParam<MeshCase> {
 protected:
  static TrainConfig config(const Shape& shape) {
    TrainConfig config = staged_config(GetParam().model(), shape);
    GetParam().change(config);
    return config;
  }
};

TEST_P(PipelineTraining, IsThatOfOneRank) {
  const MeshRun alone = MeshTrainer::run(config({}));
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  ASSERT_GT(std::abs(alone.steps.back().loss / alone.steps.front().loss - 1), 1e-3)
      << "parameters do not change";
  size_t meshes = 0;
  for (const Shape& shape : kShapes) {
    const TrainConfig staged = config(shape);
    if (!validate_on_mesh(staged).ok()) continue;  // no experts
    ++meshes;
    expect_same_training(
        MeshTrainer::run(staged), alone,
        absl::StrCat(mesh_of(staged.mesh).to_string(), " repeats=", shape.chunks,
                     " microbatches=", shape.micro_batches, " zero_stage=", shape.zero_stage));
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_GE(meshes, std::size(kShapes) - 2);
}

// A ring of an odd number of stages, whose chunks alternate between layers of both kinds.
TEST_P(PipelineTraining, OfThreeStages) {
  const auto with_layers = [](TrainConfig config) {
    config.model.num_layers = 6;
    config.per_device_batch_size = 6;
    return config;
  };
  const MeshRun alone = MeshTrainer::run(with_layers(config({})));
  for (const Shape& shape : {Shape{3, 2, 3}, Shape{3, 1, 6}})
    expect_same_training(MeshTrainer::run(with_layers(config(shape))), alone,
                         absl::StrCat("repeats=", shape.chunks));
}

INSTANTIATE_TEST_SUITE_P(Models, PipelineTraining, testing::ValuesIn(kPipelineCases),
                         [](const auto& test) { return std::string(test.param.name); });

// Accumulation steps go through the pipeline as one, with as many micro-batches as any number of
// stages leaves.
TEST(PipelineTraining, Accumulates) {
  TrainConfig config = staged_config(sharded_llama(), {});
  config.gradient_accumulation_steps = 3;
  const MeshRun alone = MeshTrainer::run(config);
  TrainConfig staged = staged_config(sharded_llama(), {4, 1, 2});
  staged.gradient_accumulation_steps = 3;
  expect_same_training(MeshTrainer::run(staged), alone, "1F1B");
  staged = staged_config(sharded_llama(), {2, 2, 2});
  staged.gradient_accumulation_steps = 3;
  expect_same_training(MeshTrainer::run(staged), alone, "interleaved");
}

// Masks and sums over whole tensors, of which a stage has some; the largest magnitudes of all
// stages are everybody's.
TEST(PipelineTraining, EveryOptimizerAndDelayedScaling) {
  TrainConfig config = staged_config(sharded_llama(), {});
  config.model.logits_via_embedding = true;
  config.optimizer.update_clip = 0.5;
  config.steps = 6;
  const auto expect_same = [&](const std::string& what) {
    const MeshRun alone = MeshTrainer::run(config);
    TrainConfig staged = config;
    staged.mesh = staged_config(sharded_llama(), {2, 2, 2, {{MeshAxis::kFsdp, 2}}}).mesh;
    staged.pipeline_repeats = staged.pipeline_microbatches = 2;
    staged.per_device_batch_size /= 2;
    expect_same_training(MeshTrainer::run(staged), alone, what);
  };
  for (size_t type = 0; type < kOptimizerNames.size(); ++type) {
    config.optimizer.type = static_cast<OptimizerType>(type);
    expect_same(std::string(kOptimizerNames[type]));
  }
  config.model.quantization = {.type = QuantizationType::kFp8Delayed, .amax_history_length = 4};
  config.optimizer.type = OptimizerType::kAdamW;
  // Small, because a difference in the last bit may round to another number of the grid.
  config.optimizer.learning_rate = 1e-9;
  expect_same("delayed scaling");
}

// The gradient of a key's bias is nothing but what rounding leaves: softmax does not see what all
// keys have in common. However small, Adafactor divides it by itself, so that these biases go their
// own ways wherever sums are made in another order.
TEST(PipelineTraining, AdafactorDistinguishesNoiseFromZero) {
  TrainConfig config = staged_config(sharded_gpt(), {});
  config.optimizer.type = OptimizerType::kAdafactor;
  const MeshRun alone = MeshTrainer::run(config);
  for (Shape shape :
       {Shape{2, 1, 2, {{MeshAxis::kFsdp, 2}}}, Shape{1, 1, 1, {{MeshAxis::kFsdp, 2}}}}) {
    TrainConfig staged = staged_config(sharded_gpt(), shape);
    staged.optimizer.type = config.optimizer.type;
    const MeshRun run = MeshTrainer::run(staged);
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_LT(largest_loss_difference(run, alone), 1e-5);
    for (const ParamSpec& spec : model_params(config.model)) {
      if (spec.name.ends_with("k_proj.bias")) continue;
      for (int64_t i = spec.offset; i < spec.offset + spec.elements(); ++i) {
        const auto at = static_cast<size_t>(i);
        ASSERT_NEAR(run.params[at], alone.params[at], 1e-5) << spec.name;
      }
    }
  }
}

// stage_messages.h's formulas.
TEST(PipelineTraining, SentBytesMatchTheFormulas) {
  for (const ComputeType dtype : {ComputeType::kFloat32, ComputeType::kBfloat16}) {
    for (const Shape& shape :
         {Shape{4, 1, 2}, Shape{2, 2, 4}, Shape{2, 1, 4, {{MeshAxis::kTensor, 2}}}}) {
      TrainConfig config = staged_config(sharded_llama(), shape);
      config.dtype = dtype;
      config.steps = 2;
      const MeshRun run = MeshTrainer::run(config);
      ASSERT_TRUE(run.status.ok()) << run.status;
      const auto runs = static_cast<uint64_t>(shape.stages * shape.chunks);
      // Ranks along tensor send their rows, all of which are a micro-batch's.
      const uint64_t stream = uint64_t{kSequences} * kStageLength *
                              static_cast<uint64_t>(config.model.emb_dim) *
                              dtype_bytes(config.activation_type());
      EXPECT_EQ(run.message_bytes, static_cast<uint64_t>(config.steps) * 2 * (runs - 1) * stream);
      // Rank 0 has the first stage, whose first chunk's gradients end there.
      const auto chunks = static_cast<uint64_t>(shape.chunks);
      const auto tensor = static_cast<uint64_t>(mesh_of(config.mesh).degree(MeshAxis::kTensor));
      EXPECT_EQ(run.sent.at("pipeline#3").at(CollectiveKind::kSend),
                static_cast<uint64_t>(config.steps) * (2 * chunks - 1) * stream / tensor);
    }
  }
}

// Records the pass's calls: "+3" a block is acquired, "-3" released, "?3" expected.
class AskedBlocks final : public ParameterBlocks {
 public:
  void prefetch(size_t) override {}
  void expect(size_t block) override { calls.push_back(absl::StrCat("?", block)); }
  void acquire(size_t block) override { calls.push_back(absl::StrCat("+", block)); }
  void release(size_t block) override { calls.push_back(absl::StrCat("-", block)); }
  Accumulate begin_gradient(size_t, Accumulate wanted) override { return wanted; }
  void gradient_done(size_t) override {}
  bool broken() const override { return false; }

  std::vector<std::string> calls;
};

// Gathers of the next pass continue while the last layer of this one is computed.
TEST(PipelineTraining, TheNextPassIsExpectedDuringTheLastLayer) {
  const TrainConfig config = staged_config(sharded_llama(), {2, 1, 4});
  const TrainingPlan plan = plan_training(config, 1, Staging::kNo, 0);
  Arena arena(plan.memory());
  const auto ops = cpu_ops(1);
  AskedBlocks blocks;
  Transformer model(plan.model, arena, *ops, &blocks);
  const auto tokens = static_cast<size_t>(plan.model.token_count());
  const std::vector<int32_t> ids(tokens, 1);
  const std::vector<float> weights(tokens, 1);
  const Batch batch{ids, ids, weights};
  const LayerRun run = plan.model.run();
  model.expect_after_next(plan.model.first_block_forward(run));
  model.forward_run(run, batch);
  // The embedding is block 0, and the stage's two layers are the next.
  EXPECT_EQ(blocks.calls, (std::vector<std::string>{"+0", "-0", "+1", "+2", "-1", "?0", "-2"}));
  blocks.calls.clear();
  model.expect_after_next(plan.model.first_block_backward(run));
  model.backward_run(run, batch, Accumulate::kNo);
  EXPECT_EQ(blocks.calls, (std::vector<std::string>{"+2", "-2", "+1", "?2", "-1"}));
}

// Without other exchanges beside the passes, messages are all of their communication.
TEST(PipelineTraining, MessagesAreCommunication) {
  TrainConfig config = staged_config(sharded_llama(), {2, 1, 4});
  config.steps = 2;
  // A step whose messages all arrived in time waits for none, so some of these runs must wait.
  constexpr int kRuns = 20;
  double waited = 0;
  for (int i = 0; i < kRuns && waited == 0; ++i) {
    const MeshRun run = MeshTrainer::run(config);
    ASSERT_TRUE(run.status.ok()) << run.status;
    for (const StepRecord& step : run.steps) {
      ASSERT_TRUE(step.comm.has_value());
      EXPECT_GT(step.comm->seconds, 0);
      waited += step.pipeline->wait_seconds;
    }
  }
  EXPECT_GT(waited, 0);
}

// Roundings of what goes between stages are those of one rank's stream.
TEST(PipelineTraining, Bfloat16GivesTheBitsOfOneRank) {
  TrainConfig config = staged_config(sharded_llama(), {});
  config.dtype = ComputeType::kBfloat16;
  config.gradient_accumulation_steps = 4;
  config.per_device_batch_size = kSequences / 4;
  const MeshRun alone = MeshTrainer::run(config);
  TrainConfig staged = staged_config(sharded_llama(), {2, 2, 4});
  staged.dtype = ComputeType::kBfloat16;
  const MeshRun run = MeshTrainer::run(staged);
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_EQ(run.losses(), alone.losses());
}

// Slots for the micro-batches that are under way, each with what one rank would keep of a run's
// layers, and the four buffers of a stage that is neither the first nor the last.
TEST(PipelineTraining, KeepsActivationsInSlots) {
  TrainConfig config = staged_config(sharded_llama(), {4, 1, 8});
  config.model.num_layers = 8;
  config.model.emb_dim = 16;  // a whole number of cache lines
  config.remat_policy = RematPolicy::kNone;
  TrainConfig one_layer = config;
  one_layer.mesh = {};
  one_layer.pipeline_microbatches = 1;
  one_layer.per_device_batch_size = 1;
  const auto kept = [](const TrainConfig& of, int32_t rank) {
    return plan_training(of, 1, Staging::kNo, rank)
        .memory()
        .category_bytes(MemoryCategory::kActivations);
  };
  const size_t of_one_rank = kept(one_layer, 0);  // 8 layers, 1 sequence
  for (int32_t stage = 0; stage < 4; ++stage) {
    const auto slots = static_cast<size_t>(4 - stage);
    EXPECT_EQ(kept(config, stage), slots * of_one_rank / 4) << stage;
  }
  // Interleaved: one layer at a time, of which 2 (p - 1) + (v - 1) p + 1 are under way.
  config.pipeline_repeats = 2;
  EXPECT_EQ(kept(config, 0), 11 * of_one_rank / 8);
}

// Nothing is planned that no pass uses: every buffer of a rank's memory has been written.
TEST(PipelineTraining, UsesAllThatIsPlanned) {
  for (const ModelConfig& model : {sharded_llama(), sharded_gpt(), sharded_glam()}) {
    for (const Shape& shape : {Shape{4, 1, 4}, Shape{2, 2, 2, {{MeshAxis::kFsdp, 2}}}}) {
      TrainConfig config = staged_config(model, shape);
      config.model.experts.balance_weight = 0.1;
      config.steps = 2;
      const auto inspect = [&](ProcessGroups& groups, RankModel& rank_model, int64_t step) {
        if (step == 0) return;
        const MemoryPlan& plan = rank_model.plan().memory();
        const PlannedBuffer& params = plan.at(rank_model.plan().model.param_block);
        const char* const arena =
            reinterpret_cast<const char*>(rank_model.model().params().data()) - params.offset;
        for (const PlannedBuffer& buffer : plan.buffers()) {
          EXPECT_TRUE(std::any_of(arena + buffer.offset, arena + buffer.offset + buffer.bytes,
                                  [](char byte) { return byte != 0; }))
              << model.name << " rank " << groups.rank() << ": " << buffer.name;
        }
      };
      ASSERT_TRUE(MeshTrainer::run(config, inspect).status.ok());
    }
  }
}

// The first failed message ends the passes of all stages, and the step returns it.
TEST(PipelineTraining, ALostRankEndsTheStep) {
  for (const int lost : {0, 2, 3}) {
    const TrainConfig config = staged_config(sharded_gpt(), {4, 1, 4});
    const MeshRun run =
        MeshTrainer::run(config, [&](ProcessGroups& groups, RankModel&, int64_t step) {
          if (groups.rank() == lost && step == 3) groups.abort();
        });
    EXPECT_TRUE(absl::IsUnavailable(run.status)) << run.status;
  }
}

}  // namespace
}  // namespace muster::trainer
