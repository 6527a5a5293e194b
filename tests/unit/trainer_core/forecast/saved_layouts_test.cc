#include "trainer_core/forecast/saved_layouts.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>

#include <gtest/gtest.h>

#include "tests/unit/meshes.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/base/saved_plan.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/startup/planned_start.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

TrainConfig planned_config(const Degrees& degrees) {
  TrainConfig config = tiny_config(mesh_with(degrees).ranks());
  config.hardware = Hardware::kGpu;
  config.mesh.ici = degrees;
  config.per_device_batch_size = 24;
  config.pipeline_microbatches = 2 * degrees[static_cast<size_t>(MeshAxis::kPipeline)];
  config.model.num_layers = 4;
  return config;
}

absl::StatusOr<SavedPlan> saved(const TrainConfig& config) {
  nlohmann::json plan = saved_layouts(config, 0, "a GPU");
  plan["config"] = to_json(config);
  plan["machines"] = {{"topology", "own"},
                      {"device", "a GPU"},
                      {"has_backend", true},
                      {"nodes", 1},
                      {"devices_per_node", mesh_of(config.mesh).ranks()}};
  for (const char* key : {"device_bytes", "step_seconds", "communication_seconds", "read_seconds",
                          "checkpoint_seconds"})
    plan[key] = 0;
  return parse_saved_plan(nlohmann::json::parse(saved_plan_text(plan)), "/plan");
}

// A rank of any mesh starts from the plan of its config, with packed sequences or others, and with
// checkpoints or without.
TEST(SavedLayouts, EachRankOfAnyMeshMatchesThem) {
  int meshes = 0;
  for (const int32_t ranks : {1, 2, 3, 4, 6, 8}) {
    for (const Degrees& degrees : factorisations(ranks)) {
      TrainConfig config = planned_config(degrees);
      if (!validate(config).ok()) continue;
      ++meshes;
      const auto plan = saved(config);
      ASSERT_TRUE(plan.ok()) << plan.status();
      for (const bool packed : {false, true}) {
        config.dataset_type = packed ? DatasetType::kShards : DatasetType::kSynthetic;
        config.enable_checkpointing = packed;
        for (int32_t rank = 0; rank < ranks; ++rank) {
          const TrainingPlan own = plan_training(config, 1, staging_of(config, rank), rank);
          const absl::Status status = check_rank_plan(*plan, config, own, rank);
          EXPECT_TRUE(status.ok())
              << mesh_of(config.mesh).to_string() << ", rank " << rank << ": " << status;
        }
      }
    }
  }
  EXPECT_GT(meshes, 50);
}

TEST(SavedLayouts, AnotherLayoutOrScheduleIsRefused) {
  Degrees stages{1, 1, 1, 1, 1, 1, 1};
  stages[static_cast<size_t>(MeshAxis::kPipeline)] = 2;
  const TrainConfig config = planned_config(stages);
  ASSERT_TRUE(validate(config).ok()) << validate(config);
  const auto plan = saved(config);
  ASSERT_TRUE(plan.ok()) << plan.status();
  TrainConfig other = config;
  other.max_target_length *= 2;
  const auto refusal = [&](const TrainConfig& changed, int32_t rank) {
    const TrainingPlan own = plan_training(changed, 1, staging_of(changed, rank), rank);
    return std::string(check_rank_plan(*plan, changed, own, rank).message());
  };
  EXPECT_EQ(refusal(config, 1), "");
  EXPECT_THAT(refusal(other, 1), HasSubstr("the layout of stage 1 has"));
  other = config;
  other.pipeline_microbatches *= 2;
  EXPECT_THAT(refusal(other, 0), HasSubstr("another order of passes for stage 0"));
  EXPECT_EQ(passes_text(planned_config({1, 1, 1, 1, 1, 1, 1}), 0), "f0.0 b0.0 x2");
  EXPECT_EQ(passes_text(config, 1), "f0.0 b0.0 f1.0 b1.0 f2.0 b2.0 f3.0 b3.0");
}

TEST(SavedLayouts, ThreadsAreThoseOfTheEnvironment) {
  TrainConfig config = planned_config({1, 1, 2, 1, 1, 1, 1});
  EXPECT_EQ(planned_threads(config), 0);
  config.hardware = Hardware::kCpu;
  config.threads = 0;
  const char* own = std::getenv("OMP_NUM_THREADS");
  const std::string before = own == nullptr ? "" : own;
  setenv("OMP_NUM_THREADS", "3", 1);
  EXPECT_EQ(planned_threads(config), 3);
  config.threads = 2;
  EXPECT_EQ(planned_threads(config), 2);
  if (own == nullptr) {
    unsetenv("OMP_NUM_THREADS");
  } else {
    setenv("OMP_NUM_THREADS", before.c_str(), 1);
  }
}

TEST(SavedLayouts, AlgorithmsOfAnEarlierRunAreCopiedToANewOne) {
  const TempFolder folder;
  TrainConfig config = planned_config({1, 1, 1, 1, 1, 1, 1});
  config.enable_checkpointing = true;
  config.checkpoint_directory = folder.file("old");
  std::filesystem::create_directory(folder.file("old"));
  write_file(folder.file("old/cublaslt-algorithms"),
             "cublasLt 1|a GPU|64x64\t00\ncublasLt 1|another|64x64\t01\n");
  EXPECT_EQ(stored_algorithms(config, "a GPU"),
            std::vector<std::string>{"cublasLt 1|a GPU|64x64\t00"});
  const auto plan = saved(config);
  // Its `device` is that of the plan.
  ASSERT_TRUE(plan.ok()) << plan.status();
  config.checkpoint_directory = folder.file("new");
  store_algorithms(config, *plan);
  EXPECT_EQ(read_file(folder.file("new/cublaslt-algorithms")), "cublasLt 1|a GPU|64x64\t00\n");
  write_file(folder.file("new/cublaslt-algorithms"), "own\n");
  store_algorithms(config, *plan);
  EXPECT_EQ(read_file(folder.file("new/cublaslt-algorithms")), "own\n");
  const std::filesystem::directory_iterator files(folder.file("new"));
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "no temporary file stays";
}

}  // namespace
}  // namespace muster::trainer
