// Ranks that have parts of the same sequences train as one rank does that has all of them.
#include <algorithm>
#include <cmath>
#include <functional>
#include <latch>
#include <memory>
#include <sstream>
#include <string>

#include <absl/strings/str_cat.h>

#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/parallel/mesh_configs.h"
#include "tests/unit/trainer_core/parallel/mesh_trainer.h"
#include "trainer_core/loop/evaluation.h"
#include "trainer_core/recovery/not_finite.h"

namespace muster::trainer {
namespace {

using enum MeshAxis;

// Enough KV heads for two sequence ranks beside two tensor ranks.
TrainConfig small_config(const ModelConfig& model, const MeshShape& shape) {
  TrainConfig config = config_of(model, shape);
  config.model.num_layers = 2;
  config.model.num_kv_heads = 4;
  return config;
}

const MeshCase kContextCases[] = {
    {"llama_dropout", sharded_llama,
     [](TrainConfig& config) {
       config.model.dropout_rate = config.model.input_dropout_rate = 0.2;
       config.gradient_accumulation_steps = 2;
     }},
    // A window shorter than a chunk of two ranks, and longer than one of four.
    {"llama_packed_window", sharded_llama,
     [](TrainConfig& config) {
       config.dataset_type = DatasetType::kShards;
       config.model.sliding_window_size = 3;
       config.model.attn_logits_soft_cap = 1.5;
       config.remat_policy = RematPolicy::kNone;
     }},
    {"llama_parallel_offloaded", sharded_llama,
     [](TrainConfig& config) {
       config.model.parallel_block = config.model.logits_via_embedding = true;
       config.remat_policy = RematPolicy::kMinimalOffloaded;
       config.gradient_accumulation_steps = 2;
     }},
    // Learned positions, relative biases and a score that belongs to no token.
    {"gpt_packed", sharded_gpt,
     [](TrainConfig& config) {
       config.dataset_type = DatasetType::kShards;
       config.model.attention_extra_zero = true;
       config.gradient_accumulation_steps = 2;
       config.remat_policy = RematPolicy::kMinimal;
     }},
    {"mixture_packed", sharded_glam,
     [](TrainConfig& config) {
       config.dataset_type = DatasetType::kShards;
       config.model.experts.balance_weight = 0.1;
       config.model.experts.capacity_factor = 1;
       config.model.dropout_rate = 0.1;
     }},
    {"glam", sharded_glam,
     [](TrainConfig& config) {
       config.model.experts.router = RouterStyle::kPax;
       config.model.experts.balance_weight = 0.1;
       config.model.experts.capacity_factor = 0.75;
       config.remat_policy = RematPolicy::kMinimal;
     }},
};

class ContextTraining : public testing::TestWithParam<MeshCase> {
 protected:
  static TrainConfig config(const MeshShape& shape) {
    TrainConfig config = small_config(GetParam().model(), shape);
    GetParam().change(config);
    return config;
  }
};

TEST_P(ContextTraining, IsThatOfOneRank) {
  const MeshRun alone = MeshTrainer::run(config({}));
  ASSERT_TRUE(alone.status.ok()) << alone.status;
  ASSERT_GT(std::abs(alone.steps.back().loss / alone.steps.front().loss - 1), 1e-4)
      << "parameters do not change";
  if (alone.steps[0].experts) {
    ASSERT_GT(alone.steps[0].experts->dropped_fraction, 0) << "no other process competes";
  }
  for (const MeshShape& shape :
       {mesh({{kContext, 2}}), mesh({{kContext, 4}}), mesh({{kSequence, 2}}),
        mesh({{kSequence, 2}, {kContext, 2}}), mesh({{kContext, 2}, {kTensor, 2}}),
        mesh({{kSequence, 2}, {kContext, 2}, {kTensor, 2}}),
        mesh({{kData, 2}, {kFsdp, 2}, {kContext, 2}}), mesh({{kFsdp, 2}, {kSequence, 4}})}) {
    // Routers of a slice's tokens are those of one rank only where there is one slice.
    const TrainConfig split = config(shape);
    if (config({}).model.experts.router == RouterStyle::kPax &&
        batch_slice(mesh_of(shape), 0).count > 1)
      continue;
    expect_same_training(MeshTrainer::run(split), alone, mesh_of(shape).to_string());
    ASSERT_FALSE(HasFatalFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ContextTraining, testing::ValuesIn(kContextCases),
                         [](const auto& test) { return std::string(test.param.name); });

// Blocks of keys are summed in fp32, so that the order of ranks adds no more than bf16 does on one
// rank.
TEST(ContextTraining, Bfloat16StaysWithinItsBand) {
  TrainConfig config = small_config(sharded_llama(), {});
  const MeshRun exact = MeshTrainer::run(config);
  config.dtype = ComputeType::kBfloat16;
  const MeshRun alone = MeshTrainer::run(config);
  double band = 0;
  for (size_t i = 0; i < exact.steps.size(); ++i)
    band = std::max(band, std::abs(alone.steps[i].loss / exact.steps[i].loss - 1));
  const double params_band = largest_difference(alone.params, exact.params);
  ASSERT_GT(band, 1e-6);
  for (const MeshShape& shape : {mesh({{kContext, 4}}), mesh({{kSequence, 2}, {kContext, 2}})}) {
    TrainConfig split = small_config(sharded_llama(), shape);
    split.dtype = ComputeType::kBfloat16;
    const MeshRun run = MeshTrainer::run(split);
    ASSERT_TRUE(run.status.ok()) << run.status;
    for (size_t i = 0; i < run.steps.size(); ++i)
      EXPECT_LT(std::abs(run.steps[i].loss / alone.steps[i].loss - 1), 2 * band) << i;
    EXPECT_LT(largest_difference(run.params, alone.params), 4 * params_band);
  }
}

// Scales of delayed fp8 are those of all tokens on all ranks.
TEST(ContextTraining, DelayedScaling) {
  TrainConfig config = small_config(sharded_llama(), {});
  config.model.quantization = {.type = QuantizationType::kFp8Delayed, .amax_history_length = 4};
  // A difference in the last bit may round to another number of the grid.
  config.optimizer.learning_rate = 1e-9;
  config.steps = 4;
  const MeshRun alone = MeshTrainer::run(config);
  config.mesh = mesh({{kSequence, 2}, {kContext, 2}});
  expect_same_training(MeshTrainer::run(config), alone, "sequence=2 context=2");
}

// The computations between steps: an evaluation, and a search for values that are not finite.
TEST(ContextTraining, OtherPasses) {
  TrainConfig config = small_config(sharded_llama(), {});
  config.dataset_type = DatasetType::kShards;
  config.eval.per_device_batch_size = 12;  // more than a micro-batch
  config.steps = 1;
  config.eval.interval = 1;
  const auto evaluate = [&](const MeshShape& shape) {
    config.mesh = shape;
    EvalRecord record;
    const MeshRun run =
        MeshTrainer::run(config, [&](ProcessGroups& groups, RankModel& rank_model, int64_t) {
          QuietContext rank(groups);
          const TrainContext context = rank.get();
          TrainingData data = packed_documents(config);
          data.eval.push_back(std::make_unique<PackedDocuments>(config.model.vocab_size));
          const auto evaluation = Evaluation::open(config, context, data);
          ASSERT_TRUE(evaluation.ok()) << evaluation.status();
          const auto evaluated = (*evaluation)->run(rank_model, 0);
          ASSERT_TRUE(evaluated.ok()) << evaluated.status();
          if (groups.rank() == 0) record = *evaluated;
          const auto batches = StepData::training(config, groups.rank(), data);
          const auto found = find_not_finite(rank_model, *batches, 0);
          ASSERT_TRUE(found.ok()) << found.status();
          EXPECT_FALSE(found->has_value()) << describe(**found);
        });
    EXPECT_TRUE(run.status.ok()) << run.status;
    return record;
  };
  const EvalRecord alone = evaluate({}), split = evaluate(mesh({{kSequence, 2}, {kContext, 2}}));
  EXPECT_EQ(split.total_weights, alone.total_weights);
  EXPECT_GT(split.total_weights, 500);
  EXPECT_NEAR(split.loss / alone.loss, 1, 1e-6);
}

// mesh_attention.h's formulas.
TEST(ContextTraining, SentBytesMatchTheFormulas) {
  constexpr uint64_t kQ = 2, kC = 2, kT = 2, kMicroBatches = 2;
  for (const RematPolicy policy : {RematPolicy::kNone, RematPolicy::kFull}) {
    for (const ComputeType dtype : {ComputeType::kFloat32, ComputeType::kBfloat16}) {
      TrainConfig config =
          small_config(sharded_llama(), mesh({{kSequence, kQ}, {kContext, kC}, {kTensor, kT}}));
      config.remat_policy = policy;
      config.dtype = dtype;
      config.gradient_accumulation_steps = kMicroBatches;
      config.steps = 2;
      const MeshRun run = MeshTrainer::run(config);
      ASSERT_TRUE(run.status.ok()) << run.status;
      const uint64_t passes = static_cast<uint64_t>(config.steps) * kMicroBatches;
      const auto layers = static_cast<uint64_t>(config.model.num_layers);
      const auto head_dim = static_cast<uint64_t>(config.model.head_dim);
      const uint64_t heads = static_cast<uint64_t>(config.model.num_query_heads) / kT;
      const uint64_t kv_heads = static_cast<uint64_t>(config.model.num_kv_heads) / kT;
      const uint64_t again = policy == RematPolicy::kFull ? layers - 1 : 0;
      const uint64_t tokens = uint64_t{kSequences} * kLength / (kQ * kC);
      const uint64_t number = dtype_bytes(config.activation_type());
      const uint64_t e = tokens * (kQ - 1) * number / kQ;
      const uint64_t qkv = (heads + 2 * kv_heads) * head_dim, out = heads * head_dim;
      EXPECT_EQ(run.sent.at("sequence").at(CollectiveKind::kAllToAll),
                passes * e * ((layers + again) * (qkv + out) + layers * (qkv + 2 * out)));
      const uint64_t n = tokens * 2 * kv_heads * head_dim;
      EXPECT_EQ(run.sent.at("context#2").at(CollectiveKind::kSendRecv),
                passes * ((2 * layers + again) * (kC - 1) * n * number + layers * kC * n * 4));
    }
  }
}

// mesh_exchange.h's.
TEST(ContextTraining, RouterBytesMatchTheFormulas) {
  TrainConfig config = small_config(sharded_glam(), mesh({{kContext, 2}, {kTensor, 2}}));
  config.model.experts.balance_weight = 0.1;
  config.steps = 1;
  const MeshRun run = MeshTrainer::run(config);
  ASSERT_TRUE(run.status.ok()) << run.status;
  const uint64_t own_rows = uint64_t{kSequences} * kLength / 4;
  const auto experts = static_cast<uint64_t>(config.model.experts.count);
  // One layer of two has experts, and it is the last one, which is not computed again.
  EXPECT_EQ(run.sent.at("context+tensor").at(CollectiveKind::kAllGather),
            4 * 3 * own_rows * (experts + 1));
}

// The first failed exchange ends the pass on every rank, and the step returns it.
TEST(ContextTraining, ALostRankEndsTheStep) {
  const TrainConfig config =
      small_config(sharded_glam(), mesh({{kSequence, 2}, {kContext, 2}, {kTensor, 2}}));
  std::latch at_third_step(8);
  const MeshRun run =
      MeshTrainer::run(config, [&](ProcessGroups& groups, RankModel&, int64_t step) {
        if (step != 3) return;
        at_third_step.arrive_and_wait();
        if (groups.rank() == 5) groups.abort();
      });
  EXPECT_TRUE(absl::IsUnavailable(run.status)) << run.status;
}

}  // namespace
}  // namespace muster::trainer
