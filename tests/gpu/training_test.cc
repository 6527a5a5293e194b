// Whole trainings with hardware=gpu: the CPU's losses on any mesh, and results that a restart must
// not change. The host cannot access the emulated device's memory, so no step from a batch to a
// checkpoint can rely on host access.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/gpu/gpu_device.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/parallel/mesh_configs.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/rank/training_plan.h"

namespace muster::trainer {
namespace {

using testing::Each;
using testing::HasSubstr;

RunResult run_on_cpu(const TrainConfig& config) {
  const OnCpu on_cpu;
  return run(config);
}

void expect_near(const RunResult& gpu, const RunResult& cpu, double bound,
                 const std::string& what) {
  ASSERT_THAT(cpu.codes, Each(ExitCode::kOk)) << what << ": " << cpu.err;
  ASSERT_THAT(gpu.codes, Each(ExitCode::kOk)) << what << ": " << gpu.err;
  ASSERT_EQ(gpu.losses().size(), cpu.losses().size()) << what;
  for (size_t i = 0; i < gpu.losses().size(); ++i)
    EXPECT_NEAR(gpu.losses()[i], cpu.losses()[i], bound * cpu.losses()[i])
        << what << ", step " << i;
  const double norm = cpu.records[0][0].raw_grad_norm;
  EXPECT_NEAR(gpu.records[0][0].raw_grad_norm, norm, 10 * bound * norm) << what;
}

// Checks that a run's plan equals the peak of its rank's allocations, none of which is host memory.
void expect_planned(const TrainConfig& config) {
  TrainConfig planned = config;
  planned.hardware = Hardware::kGpu;
  const auto devices = take_devices();
  const int32_t ranks = mesh_of(config.mesh).ranks();
  ASSERT_EQ(devices.size(), static_cast<size_t>(ranks));
  // The order of the devices is unknown, so the sums over all ranks are compared.
  size_t expected = 0, peak = 0;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    expected += plan_training(planned, 1, staging_of(planned, rank), rank).memory().device_bytes();
    peak += devices[static_cast<size_t>(rank)]->peak_bytes();
  }
  EXPECT_EQ(peak, expected);
}

struct DeviceJob {
  const char* name;
  std::function<TrainConfig()> config;
  double bound = 1e-4;
};
void PrintTo(const DeviceJob& job, std::ostream* out) { *out << job.name; }

// The emulated device's time is proportional to the rows of tokens.
TrainConfig few_steps(TrainConfig config) {
  config.steps = 3;
  config.enable_checkpointing = false;
  config.threads = 1;
  return config;
}
TrainConfig one_rank(OptimizerType optimizer = OptimizerType::kAdamW) {
  TrainConfig config = tiny_config(1);
  config.steps = 6;
  config.per_device_batch_size = 2;
  config.max_target_length = 8;
  config.optimizer.type = optimizer;
  return config;
}
TrainConfig on_mesh_of(const ModelConfig& model, const MeshShape& shape) {
  TrainConfig config = few_steps(config_of(model, shape, /*length=*/8));
  config.model.num_layers = 2;
  config.per_device_batch_size = std::max(1, config.per_device_batch_size / 2);
  return config;
}
TrainConfig of_llama(const MeshShape& shape) { return on_mesh_of(sharded_llama(), shape); }

class OnAnyMesh : public testing::TestWithParam<DeviceJob> {};

INSTANTIATE_TEST_SUITE_P(
    All, OnAnyMesh,
    testing::Values(
        DeviceJob{"one_rank", [] { return one_rank(); }},
        DeviceJob{"bf16",
                  [] {
                    TrainConfig config = one_rank();
                    config.dtype = ComputeType::kBfloat16;
                    return config;
                  },
                  2e-2},
        DeviceJob{"bf16_weights",
                  [] {
                    TrainConfig config = one_rank();
                    config.dtype = config.weight_dtype = ComputeType::kBfloat16;
                    return config;
                  },
                  2e-2},
        DeviceJob{"bf16_weights_of_fp32",
                  [] {
                    TrainConfig config = one_rank(OptimizerType::kAdafactor);
                    config.weight_dtype = ComputeType::kBfloat16;
                    return config;
                  },
                  2e-2},
        DeviceJob{"bf16_weights_along_fsdp",
                  [] {
                    TrainConfig config = of_llama(mesh({{MeshAxis::kFsdp, 2}}));
                    config.dtype = config.weight_dtype = ComputeType::kBfloat16;
                    return config;
                  },
                  2e-2},
        DeviceJob{"adafactor", [] { return one_rank(OptimizerType::kAdafactor); }},
        DeviceJob{"sgd", [] { return one_rank(OptimizerType::kSgd); }},
        DeviceJob{"bounded_adam",
                  [] {
                    TrainConfig config = one_rank(OptimizerType::kAdamPax);
                    config.optimizer.update_clip = 1;
                    return config;
                  }},
        DeviceJob{"offloaded",
                  [] {
                    TrainConfig config = one_rank();
                    config.remat_policy = RematPolicy::kMinimalOffloaded;
                    config.model.dropout_rate = 0.1;
                    return config;
                  }},
        DeviceJob{"fp8_delayed",
                  [] {
                    TrainConfig config = few_steps(tiny_config(2));
                    config.per_device_batch_size = 1;
                    config.max_target_length = 8;
                    config.model.quantization.type = QuantizationType::kFp8Delayed;
                    return config;
                  },
                  1e-3},
        DeviceJob{"frozen_nf4_along_fsdp",
                  [] {
                    TrainConfig config = few_steps(tiny_config(1));
                    config.mesh.ici[static_cast<size_t>(MeshAxis::kFsdp)] = 2;
                    config.per_device_batch_size = 1;
                    config.max_target_length = 8;
                    config.dtype = ComputeType::kBfloat16;
                    config.model.lora = {.rank = 2,
                                         .alpha = 4,
                                         .targets = lora_targets(config.model, LoraLayers::kAll),
                                         .weight_type = WeightType::kNf4};
                    return config;
                  },
                  2e-2},
        DeviceJob{"accumulation",
                  [] {
                    TrainConfig config = one_rank();
                    config.per_device_batch_size = 1;
                    config.gradient_accumulation_steps = 2;
                    return config;
                  }},
        DeviceJob{"data",
                  [] {
                    return of_llama(mesh({{MeshAxis::kData, 2}}));
                  }},
        DeviceJob{"fsdp",
                  [] {
                    return of_llama(mesh({{MeshAxis::kFsdp, 2}}));
                  }},
        DeviceJob{
            "fsdp_bf16",
            [] {
              TrainConfig config = of_llama(mesh({{MeshAxis::kFsdp, 2}, {MeshAxis::kData, 2}}));
              config.dtype = ComputeType::kBfloat16;
              return config;
            },
            2e-2},
        DeviceJob{
            "zero_1",
            [] {
              TrainConfig config = of_llama(mesh({{MeshAxis::kFsdp, 2}, {MeshAxis::kData, 2}}));
              config.zero_stage = 1;
              config.gradient_accumulation_steps = 2;
              return config;
            }},
        DeviceJob{"tensor",
                  [] {
                    return of_llama(mesh({{MeshAxis::kTensor, 2}}));
                  }},
        DeviceJob{"sequence",
                  [] {
                    return of_llama(mesh({{MeshAxis::kSequence, 2}}));
                  }},
        DeviceJob{"context",
                  [] {
                    return of_llama(mesh({{MeshAxis::kContext, 2}}));
                  }},
        DeviceJob{
            "pipeline",
            [] {
              TrainConfig config = of_llama(mesh({{MeshAxis::kPipeline, 2}, {MeshAxis::kFsdp, 2}}));
              config.model.num_layers = 4;
              config.pipeline_repeats = 2;
              config.pipeline_microbatches = 2;
              return config;
            }},
        DeviceJob{"experts",
                  [] {
                    return on_mesh_of(sharded_glam(), mesh({{MeshAxis::kExpert, 2}}));
                  }}),
    [](const auto& job) { return std::string(job.param.name); });

TEST_P(OnAnyMesh, EqualsTheCpusLosses) {
  const TrainConfig config = GetParam().config();
  take_devices();
  const RunResult gpu = run(config);
  expect_near(gpu, run_on_cpu(config), GetParam().bound, GetParam().name);
  expect_planned(config);
}

class Restarts : public testing::Test {
 protected:
  TrainConfig config(const std::string& checkpoints, int ranks = 1) const {
    TrainConfig config = along_fsdp(tiny_config(ranks));
    config.model.dropout_rate = 0.1;
    config.per_device_batch_size = 2 / ranks;
    config.max_target_length = 8;
    config.steps = 8;
    config.enable_checkpointing = true;
    config.checkpoint_directory = folder_.file(checkpoints);
    config.checkpoint_period = 2;
    return config;
  }
  std::string saved(const std::string& checkpoints, int64_t step) const {
    return checkpoint_bytes(folder_.file(checkpoints) + "/" + std::to_string(step));
  }

  TempFolder folder_;
};

// A restart repeats every bit, with asynchronous and synchronous saves, on one rank and on two. The
// stop is requested during step 3, and step 4 is still completed.
TEST_F(Restarts, ResumeBitwise) {
  for (const int ranks : {1, 2}) {
    for (const bool background : {true, false}) {
      const auto named = [&](const std::string& name) {
        TrainConfig with = config(name + std::to_string(ranks) + (background ? "a" : "s"), ranks);
        with.async_checkpointing = background;
        return with;
      };
      const RunResult whole = run(named("whole"));
      ASSERT_THAT(whole.codes, Each(ExitCode::kOk)) << whole.err;
      const RunResult first =
          run(named("parts"), [](int rank, const StepRecord& record, std::atomic<bool>& stop) {
            if (rank == 0 && record.step == 3) stop = true;
          });
      ASSERT_THAT(first.codes, Each(ExitCode::kPreempted)) << first.err;
      const RunResult second = run(named("parts"));
      ASSERT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
      ASSERT_EQ(second.records[0].front().step, 5);
      for (size_t i = 0; i < second.losses().size(); ++i)
        EXPECT_EQ(second.losses()[i], whole.losses()[i + 5]) << i;
      const std::string suffix = std::to_string(ranks) + (background ? "a" : "s");
      EXPECT_EQ(saved("whole" + suffix, 8), saved("parts" + suffix, 8)) << suffix;
    }
  }
}

// Restarts on the other backend, and on another mesh: a checkpoint does not depend on its writer.
TEST_F(Restarts, ResumeOnTheOtherBackend) {
  TrainConfig half = config("both", 2);
  half.steps = 4;
  ASSERT_THAT(run(half).codes, Each(ExitCode::kOk));
  const RunResult second = run_on_cpu(config("both"));
  ASSERT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
  ASSERT_EQ(second.records[0].front().step, 4);
  const RunResult whole = run_on_cpu(config("cpu"));
  for (size_t i = 0; i < second.losses().size(); ++i)
    EXPECT_NEAR(second.losses()[i], whole.losses()[i + 4], 1e-4 * whole.losses()[i + 4]) << i;
  TrainConfig longer = config("both", 2);
  longer.steps = 10;
  const RunResult third = run(longer);
  ASSERT_THAT(third.codes, Each(ExitCode::kOk)) << third.err;
  EXPECT_EQ(third.records[0].front().step, 8);
}

// CUDA graphs of layers change no bit, on a single rank and on two that gather the layers.
TEST_F(Restarts, AreEqualWithAndWithoutGraphs) {
  for (const auto& [ranks, dtype] :
       {std::pair(1, ComputeType::kBfloat16), std::pair(2, ComputeType::kFloat32)}) {
    const auto named = [&, ranks = ranks, dtype = dtype](const std::string& name, bool graphs) {
      TrainConfig with = config(name + std::to_string(ranks), ranks);
      // Layers with dropout are not captured.
      with.model.dropout_rate = 0;
      with.dtype = dtype;
      with.steps = 5;
      with.cuda_graphs = graphs;
      const RunResult result = run(with);
      EXPECT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
      EXPECT_THAT(result.out, testing::Not(HasSubstr("no CUDA graphs")));
      return checkpoint_bytes(with.checkpoint_directory + "/" + std::to_string(with.steps));
    };
    EXPECT_EQ(named("graphs", true), named("calls", false)) << ranks;
  }
}

// Data-parallel ranks receive the batches that the first of them has read.
TEST_F(Restarts, ResumeOnDataParallelRanks) {
  const auto named = [&](const std::string& name, int64_t steps) {
    TrainConfig with = tiny_config(2);
    with.per_device_batch_size = 1;
    with.max_target_length = 8;
    with.steps = steps;
    with.enable_checkpointing = true;
    with.checkpoint_directory = folder_.file(name);
    return with;
  };
  ASSERT_THAT(run(named("whole", 6)).codes, Each(ExitCode::kOk));
  ASSERT_THAT(run(named("parts", 3)).codes, Each(ExitCode::kOk));
  const RunResult second = run(named("parts", 6));
  ASSERT_THAT(second.codes, Each(ExitCode::kOk)) << second.err;
  EXPECT_EQ(second.records[0].front().step, 3);
  EXPECT_EQ(saved("whole", 6), saved("parts", 6));
}

}  // namespace
}  // namespace muster::trainer
