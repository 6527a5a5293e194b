// Whole trainings give the same bits with and without CUDA graphs. The emulated device compares
// each launch of a graph with the calls that it replaces; then once more without comparing, when
// only the launch is executed.
#include <gmock/gmock.h>

#include <string>

#include <gtest/gtest.h>

#include "tests/gpu/emulated/graphs.h"
#include "tests/gpu/emulated/libraries.h"
#include "tests/gpu/gpu_device.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/parallel/mesh_configs.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/startup/device_reserve.h"

namespace muster::trainer {
namespace {

using emulated::graphs;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

enum class Captured { kAll, kSome };
struct Job {
  const char* name;
  void (*change)(TrainConfig& config);
  Captured captured = Captured::kAll;
  const char* note = "";  // expected note of rank 0
};
void PrintTo(const Job& job, std::ostream* out) { *out << job.name; }

TrainConfig small(int ranks) {
  TrainConfig config = tiny_config(ranks);
  config.steps = 5;
  config.per_device_batch_size = 1;
  config.max_target_length = 8;
  return config;
}
void split(TrainConfig& config, MeshAxis axis, int32_t degree) {
  config.mesh = {};
  config.mesh.ici[static_cast<size_t>(axis)] = degree;
}

// A run, and the work enqueued on its devices.
struct Counted {
  RunResult result;
  std::string saved;
  int64_t launches = 0;
  // Graphs and their nodes before the last step, of all ranks.
  int64_t held = 0;
  // Kernels, copies and graph launches in the last step. With several ranks an estimate, because
  // they start steps at different times.
  int64_t started = 0;
};

void expect_same(const Counted& with, const Counted& without) {
  EXPECT_EQ(with.result.losses(), without.result.losses());
  EXPECT_EQ(with.saved, without.saved);
  ASSERT_EQ(with.result.evaluations[0].size(), without.result.evaluations[0].size());
  for (size_t i = 0; i < with.result.evaluations[0].size(); ++i)
    EXPECT_EQ(with.result.evaluations[0][i].loss, without.result.evaluations[0][i].loss);
}

class Trainings : public testing::Test {
 protected:
  Counted count(TrainConfig config, const std::string& name) {
    config.enable_checkpointing = true;
    config.checkpoint_directory = folder_.file(name);
    const auto started = [] { return graphs().enqueued + graphs().launches; };
    const int64_t launches = graphs().launches;
    int64_t before = 0;
    Counted counted;
    counted.result = run(config, [&](int rank, const StepRecord& record, std::atomic<bool>&) {
      if (rank != 0) return;
      if (record.step + 1 == config.steps) counted.started = started() - before;
      if (record.step + 2 != config.steps) return;
      before = started();
      counted.held = graphs().held;
    });
    EXPECT_THAT(counted.result.codes, Each(ExitCode::kOk)) << counted.result.err;
    counted.saved =
        checkpoint_bytes(config.checkpoint_directory + "/" + std::to_string(config.steps));
    counted.launches = graphs().launches - launches;
    (void)take_devices();
    return counted;
  }

  TempFolder folder_;
};

class TrainWithGraphs : public Trainings, public testing::WithParamInterface<Job> {};

INSTANTIATE_TEST_SUITE_P(
    All, TrainWithGraphs,
    testing::Values(
        Job{"full", [](TrainConfig& config) { config.remat_policy = RematPolicy::kFull; }},
        Job{"kept", [](TrainConfig& config) { config.remat_policy = RematPolicy::kNone; }},
        Job{"minimal", [](TrainConfig& config) { config.remat_policy = RematPolicy::kMinimal; }},
        Job{"offloaded",
            [](TrainConfig& config) { config.remat_policy = RematPolicy::kMinimalOffloaded; }},
        Job{"bf16", [](TrainConfig& config) { config.dtype = ComputeType::kBfloat16; }},
        Job{"accumulation", [](TrainConfig& config) { config.gradient_accumulation_steps = 3; }},
        Job{"tied", [](TrainConfig& config) { config.model.logits_via_embedding = true; }},
        Job{"gpt",
            [](TrainConfig& config) {
              config.dtype = ComputeType::kBfloat16;
              config.model.norm_type = NormType::kLayer;
              config.model.activation = Activation::kGelu;
              config.model.gated_mlp = false;
              config.model.qkv_bias = config.model.out_bias = config.model.mlp_bias = true;
            }},
        Job{"experts",
            [](TrainConfig& config) {
              config.model.experts = {.count = 4, .per_token = 2, .mlp_dim = 16};
            }},
        Job{"fp8_delayed",
            [](TrainConfig& config) {
              config.model.quantization.type = QuantizationType::kFp8Delayed;
            }},
        Job{"data", [](TrainConfig& config) { split(config, MeshAxis::kData, 2); }},
        Job{"fsdp",
            [](TrainConfig& config) {
              split(config, MeshAxis::kFsdp, 2);
              config.model.num_layers = 3;
              config.gradient_accumulation_steps = 2;
            }},
        Job{"zero_1",
            [](TrainConfig& config) {
              split(config, MeshAxis::kFsdp, 2);
              config.zero_stage = 1;
              config.gradient_accumulation_steps = 2;
            }},
        Job{"pipeline",
            [](TrainConfig& config) {
              split(config, MeshAxis::kPipeline, 2);
              config.model.num_layers = 4;
              config.model.logits_via_embedding = true;
              config.pipeline_repeats = 2;
              config.pipeline_microbatches = config.per_device_batch_size = 2;
            }},
        Job{"int8",
            [](TrainConfig& config) { config.model.quantization.type = QuantizationType::kInt8; },
            Captured::kSome,
            "no CUDA graphs of layers in the backward pass: stochastic rounding draws for other "
            "samples each time"},
        Job{"int8_to_the_nearest",
            [](TrainConfig& config) {
              config.dtype = ComputeType::kBfloat16;
              config.model.quantization = {.type = QuantizationType::kInt8,
                                           .stochastic_rounding = false};
              config.eval.interval = 2;
              config.eval.steps = 2;
            }},
        Job{"dropout", [](TrainConfig& config) { config.model.dropout_rate = 0.1; },
            Captured::kSome, "no CUDA graphs of layers: dropout draws for other samples each time"},
        Job{"expert",
            [](TrainConfig& config) {
              split(config, MeshAxis::kExpert, 2);
              config.model.experts = {.count = 4, .per_token = 2, .mlp_dim = 16};
            },
            Captured::kSome,
            "no CUDA graphs of layers with experts: how many rows come to a rank's experts is "
            "another number each time"},
        // Ranks share heads of keys; exchanges through host memory add copies.
        Job{"tensor",
            [](TrainConfig& config) {
              split(config, MeshAxis::kTensor, 2);
              config.model.num_kv_heads = 1;
              config.gradient_accumulation_steps = 2;
            },
            Captured::kSome},
        // Ranks agree on scales by collectives.
        Job{"tensor_fp8",
            [](TrainConfig& config) {
              split(config, MeshAxis::kTensor, 2);
              config.model.quantization.type = QuantizationType::kFp8Current;
            },
            Captured::kSome},
        Job{"sequence", [](TrainConfig& config) { split(config, MeshAxis::kSequence, 2); },
            Captured::kSome},
        Job{"context_with_experts",
            [](TrainConfig& config) {
              split(config, MeshAxis::kContext, 2);
              config.model.experts = {.count = 4, .per_token = 2, .mlp_dim = 16};
            },
            Captured::kSome}),
    [](const auto& job) { return std::string(job.param.name); });

TEST_P(TrainWithGraphs, ChangesNoBit) {
  const auto& [name, change, captured, note] = GetParam();
  TrainConfig config = small(1);
  change(config);
  const Counted compared = count(config, "compared");
  graphs().are_compared = false;
  const Counted with = count(config, "with");
  graphs().are_compared = true;
  const auto reserved =
      static_cast<int64_t>(with.result.codes.size() * graph_bytes(config) / kGraphKernelBytes);
  config.cuda_graphs = false;
  const Counted without = count(config, "without");

  expect_same(compared, without);
  expect_same(with, without);
  EXPECT_EQ(without.launches, 0);
  EXPECT_THAT(without.result.out, Not(HasSubstr("no CUDA graphs")));
  EXPECT_THAT(with.result.out, HasSubstr(note));
  if (*note == '\0') {
    EXPECT_THAT(with.result.out, Not(HasSubstr("no CUDA graphs")));
  }
  EXPECT_LE(with.held, reserved)
      << "trainer_core/startup/device_reserve.cc counts less than is captured";
  switch (captured) {
    case Captured::kAll:
      EXPECT_LT(with.started, without.started / 2);
      EXPECT_GT(with.held, reserved / 4) << "it counts much more";
      break;
    case Captured::kSome:
      EXPECT_GT(with.launches, 0);
      break;
  }
}

// Evaluations of several micro-batches between the steps, which record no magnitudes, and documents
// that begin elsewhere in each batch; then a restart from the middle.
TEST_F(Trainings, PackedDocumentsWithEvaluationsAndARestart) {
  make_text_dataset(folder_.path());
  TrainConfig config = small(1);
  config.steps = 6;
  config.per_device_batch_size = 2;
  config.max_target_length = 16;
  config.model.vocab_size = kTextVocab;
  config.model.quantization.type = QuantizationType::kFp8Delayed;
  config.dataset_type = DatasetType::kShards;
  config.dataset_path = folder_.file("data");
  config.eval.interval = 2;
  config.eval.holdout_fraction = 0.01;
  config.eval.per_device_batch_size = 5;
  config.eval.steps = 1;
  graphs().are_compared = false;
  const Counted with = count(config, "with");
  graphs().are_compared = true;
  ASSERT_EQ(with.result.evaluations[0].size(), 3U);
  TrainConfig half = config;
  half.steps = 3;
  (void)count(half, "parts");
  const Counted rest = count(config, "parts");
  EXPECT_EQ(rest.result.records[0].front().step, 3);
  EXPECT_EQ(rest.saved, with.saved);
  EXPECT_GT(rest.launches, 0);
  config.cuda_graphs = false;
  expect_same(with, count(config, "without"));
}

}  // namespace
}  // namespace muster::trainer
