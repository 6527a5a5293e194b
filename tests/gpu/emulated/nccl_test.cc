// Whole trainings whose collectives run through a fake NCCL in stream order give the same bits as
// through host memory. The emulated device executes nothing until a thread waits, or the
// collectives execute at once: a forgotten event changes a value in one of the two.
#include <gmock/gmock.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/gpu/emulated/cuda_runtime.h"
#include "tests/gpu/emulated/nvtx3/nvToolsExt.h"
#include "tests/gpu/gpu_device.h"
#include "tests/unit/trainer_core/comm/fake_nccl.h"
#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/parallel/mesh_configs.h"
#include "tests/unit/trainer_core/train_helpers.h"

namespace muster::trainer {
namespace {

using testing::Each;

TrainConfig on_mesh_of(const ModelConfig& model, const MeshShape& shape) {
  TrainConfig config = config_of(model, shape, /*length=*/8);
  config.model.num_layers = 2;
  config.steps = 3;
  config.enable_checkpointing = false;
  config.threads = 1;
  config.per_device_batch_size = std::max(1, config.per_device_batch_size / 2);
  return config;
}

struct Job {
  const char* name;
  std::function<TrainConfig()> config;
  bool at_once = false;
};
void PrintTo(const Job& job, std::ostream* out) { *out << job.name; }

class NcclInStreamOrder : public testing::TestWithParam<Job> {
 protected:
  void SetUp() override { take_devices(); }

  // Trains the parameter's configuration, with evaluations.
  static RunResult trained() {
    TrainConfig config = GetParam().config();
    config.eval.interval = 2;
    config.eval.steps = 1;
    RunResult result = run(config);
    EXPECT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
    return result;
  }

  const std::shared_ptr<Backend> device_ = gpu_backend({}).value();
  FakeNccl nccl_{device_->memory(), [](void* stream, std::function<void()> work) {
                   auto* const queue = static_cast<cudaStream_t>(stream);
                   emulated::enqueue(queue, {std::move(work)});
                   if (GetParam().at_once) emulated::begin(queue);
                 }};
};

INSTANTIATE_TEST_SUITE_P(
    All, NcclInStreamOrder,
    testing::Values(
        Job{"tensor",
            [] {
              TrainConfig config = on_mesh_of(sharded_llama(), mesh({{MeshAxis::kTensor, 2}}));
              config.gradient_accumulation_steps = 2;
              return config;
            }},
        Job{"tensor_at_once",
            [] {
              return on_mesh_of(sharded_llama(), mesh({{MeshAxis::kTensor, 2}}));
            },
            /*at_once=*/true},
        Job{"sequence_at_once",
            [] {
              return on_mesh_of(sharded_llama(), mesh({{MeshAxis::kSequence, 2}}));
            },
            /*at_once=*/true},
        Job{"tensor_and_fsdp",
            [] {
              return on_mesh_of(sharded_llama(),
                                mesh({{MeshAxis::kTensor, 2}, {MeshAxis::kFsdp, 2}}));
            }},
        Job{"tensor_quantized",
            [] {
              TrainConfig config = on_mesh_of(sharded_llama(), mesh({{MeshAxis::kTensor, 2}}));
              config.model.quantization.type = QuantizationType::kFp8Delayed;
              return config;
            }},
        Job{"sequence",
            [] {
              return on_mesh_of(sharded_llama(), mesh({{MeshAxis::kSequence, 2}}));
            }},
        Job{"context_and_tensor",
            [] {
              return on_mesh_of(sharded_llama(),
                                mesh({{MeshAxis::kContext, 2}, {MeshAxis::kTensor, 2}}));
            }},
        Job{"experts",
            [] {
              return on_mesh_of(sharded_glam(),
                                mesh({{MeshAxis::kExpert, 2}, {MeshAxis::kTensor, 2}}));
            }},
        Job{"pipeline_and_tensor",
            [] {
              TrainConfig config = on_mesh_of(
                  sharded_llama(), mesh({{MeshAxis::kPipeline, 2}, {MeshAxis::kTensor, 2}}));
              config.pipeline_microbatches = 2;
              return config;
            }}),
    [](const auto& job) { return std::string(job.param.name); });

TEST_P(NcclInStreamOrder, GivesTheStagedResults) {
  const RunResult staged = trained();
  const OnNccl on_nccl({.api = nccl_.api()});
  const RunResult ours = trained();
  ASSERT_FALSE(HasFailure());
  EXPECT_GT(nccl_.calls, 0);
  EXPECT_EQ(ours.losses(), staged.losses());
  for (size_t rank = 0; rank < ours.records.size(); ++rank)
    for (size_t step = 0; step < ours.records[rank].size(); ++step)
      EXPECT_EQ(ours.records[rank][step].raw_grad_norm, staged.records[rank][step].raw_grad_norm)
          << "rank " << rank << ", step " << step;
  ASSERT_EQ(ours.evaluations[0].size(), staged.evaluations[0].size());
  for (size_t i = 0; i < ours.evaluations[0].size(); ++i)
    EXPECT_EQ(ours.evaluations[0][i].loss, staged.evaluations[0][i].loss);
  EXPECT_EQ(nccl_.communicators, 0);
}

TrainConfig of_experts(const MeshShape& shape) {
  TrainConfig config = on_mesh_of(sharded_glam(), shape);
  config.model.num_layers = 4;
  config.remat_policy = RematPolicy::kFull;
  return config;
}

using WaitsForCounts = NcclInStreamOrder;
INSTANTIATE_TEST_SUITE_P(
    All, WaitsForCounts,
    testing::Values(Job{"accumulation",
                        [] {
                          TrainConfig config = of_experts(mesh({{MeshAxis::kExpert, 2}}));
                          config.gradient_accumulation_steps = 2;
                          return config;
                        }},
                    Job{"pipeline",
                        [] {
                          TrainConfig config =
                              of_experts(mesh({{MeshAxis::kPipeline, 2}, {MeshAxis::kExpert, 2}}));
                          config.pipeline_microbatches = 2;
                          return config;
                        }}),
    [](const auto& job) { return std::string(job.param.name); });

// Returns, per range such as "forward layer 1", the numbers of downloads during its occurrences.
std::map<std::string, std::set<int>> downloads_by_layer() {
  std::map<std::string, std::set<int>> downloads;
  for (const auto& [thread, recorded] : std::exchange(emulated::listener().recorded, {})) {
    std::vector<std::string> ranges;
    int in_layer = 0;
    for (const std::string& what : recorded) {
      if (what.starts_with("phase ")) continue;
      if (what == "download") {
        ++in_layer;
      } else if (what != "end") {
        if (what.starts_with("layer ")) in_layer = 0;
        ranges.push_back(what);
      } else {
        if (ranges.back().starts_with("layer "))
          downloads[ranges.front() + ' ' + ranges.back()].insert(in_layer);
        ranges.pop_back();
      }
    }
  }
  return downloads;
}

// Downloads once per micro-batch's forward pass in layers 1 and 3; layer 1 recomputes its routing,
// and the last layer does not.
TEST_P(WaitsForCounts, OncePerRouting) {
  const RunResult staged = trained();
  const OnNccl on_nccl({.api = nccl_.api()});
  emulated::listener().is_recording = true;
  const RunResult ours = trained();
  emulated::listener().is_recording = false;
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(ours.losses(), staged.losses());
  using Times = std::pair<const std::string, std::set<int>>;
  EXPECT_THAT(downloads_by_layer(),
              testing::ElementsAre(Times("backward layer 0", {0}), Times("backward layer 1", {0}),
                                   Times("backward layer 2", {0}), Times("backward layer 3", {0}),
                                   Times("forward layer 0", {0}), Times("forward layer 1", {1}),
                                   Times("forward layer 2", {0}), Times("forward layer 3", {1})));
}

using LostPeers = NcclInStreamOrder;
INSTANTIATE_TEST_SUITE_P(All, LostPeers,
                         testing::Values(Job{
                             "tensor", [] {
                               return on_mesh_of(sharded_llama(), mesh({{MeshAxis::kTensor, 2}}));
                             }}));

// An error that NCCL detects in the middle of a step ends the run, and that step is not reported.
TEST_P(LostPeers, EndTheRun) {
  const OnNccl on_nccl({.api = nccl_.api()});
  const RunResult result =
      run(GetParam().config(), [&](int rank, const StepRecord& record, std::atomic<bool>&) {
        if (rank == 0 && record.step == 1) nccl_.remote_error = true;
      });
  EXPECT_THAT(result.codes, Each(testing::Ne(ExitCode::kOk)));
  EXPECT_EQ(result.records[0].size(), 2U);
  // Either group may detect it first, in the pass or concurrently.
  EXPECT_THAT(result.err, testing::ContainsRegex(
                              "of group \"tensor(#1)? nccl\"\\) failed: NCCL: remote process "
                              "exited or there was a network error"));
  EXPECT_EQ(nccl_.communicators, 0);
}

}  // namespace
}  // namespace muster::trainer
