#include "trainer_core/forecast/memory_forecast.h"

#include <gmock/gmock.h>

#include <algorithm>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <gtest/gtest.h>

#include "tests/unit/meshes.h"
#include "tests/unit/trainer_core/setting_words.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/rank/training_plan.h"
#include "trainer_core/startup/device_room.h"
#include "trainer_core/startup/node_memory.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::Ge;
using testing::HasSubstr;
using testing::Lt;
using testing::Not;

constexpr size_t kPlenty = size_t{80} << 30;

TrainConfig config_on(const Degrees& degrees) {
  TrainConfig config = tiny_config(mesh_with(degrees).ranks());
  config.hardware = Hardware::kGpu;
  config.mesh.ici = degrees;
  config.per_device_batch_size = 24;
  config.pipeline_microbatches = 2 * degrees[static_cast<size_t>(MeshAxis::kPipeline)];
  config.model.num_layers = 4;
  config.cuda_graphs = true;
  return config;
}

size_t planned_bytes(const TrainConfig& config, int32_t rank) {
  return plan_training(config, 1, staging_of(config, rank), rank).memory().device_bytes();
}

// The forecast has the ranks that need the most: shares that do not divide evenly are larger at
// coordinate 0.
TEST(MemoryForecast, NoRankNeedsMoreThanThatOfItsStage) {
  int meshes = 0;
  for (const int32_t ranks : {1, 2, 3, 4, 6, 8, 12}) {
    for (const Degrees& degrees : factorisations(ranks)) {
      const TrainConfig config = config_on(degrees);
      if (!validate(config).ok()) continue;
      ++meshes;
      const Mesh mesh = mesh_of(config.mesh);
      const std::vector<int32_t> largest = largest_rank_of_each_stage(config);
      ASSERT_EQ(largest.size(), static_cast<size_t>(mesh.degree(MeshAxis::kPipeline)));
      for (int32_t rank = 0; rank < mesh.ranks(); ++rank) {
        const auto stage = mesh.coordinate(rank)[static_cast<size_t>(MeshAxis::kPipeline)];
        EXPECT_LE(planned_bytes(config, rank),
                  planned_bytes(config, largest[static_cast<size_t>(stage)]))
            << mesh.to_string() << ", rank " << rank;
      }
    }
  }
  EXPECT_GT(meshes, 100);
}

int32_t largest_rank(const MemoryForecast& forecast) {
  return std::ranges::max_element(forecast.stages, {}, &StageMemory::device_bytes)->rank;
}

// Returns the table with which a run on the device would end.
std::string refusal_of_a_start(const TrainConfig& config, int32_t rank, size_t free_bytes) {
  DeviceRoom room{.device = "a GPU",
                  .free_bytes = free_bytes,
                  .beside = backend_reserves(gpu_scratch_bytes(config)),
                  .nccl = true,
                  .has_nccl = true};
  room.beside.push_back(kKernelCode);
  const std::string text(check_device_room(config, std::array{rank}, room).status().message());
  EXPECT_THAT(text, HasSubstr("what would fit"));
  return text.substr(0, text.find("what would fit"));
}

TEST(MemoryForecast, IsWhatAStartOnTheDeviceChecks) {
  for (const Degrees& degrees :
       {Degrees{1, 1, 1, 1, 1, 1, 1}, Degrees{2, 1, 4, 1, 1, 1, 1}, Degrees{1, 2, 2, 1, 1, 1, 2}}) {
    const TrainConfig config = config_on(degrees);
    const MemoryForecast all = forecast_memory(config, {.name = "a GPU", .memory_bytes = kPlenty});
    EXPECT_TRUE(all.fits) << all.problem;
    size_t needed = 0;
    for (const StageMemory& stage : all.stages) {
      EXPECT_GE(stage.device_bytes, sum_of(stage.uses));
      EXPECT_LT(stage.device_bytes - sum_of(stage.uses), 16 * kBufferAlignment);
      needed = std::max(needed, stage.device_bytes);
    }
    EXPECT_TRUE(forecast_memory(config, {.name = "a GPU", .memory_bytes = needed}).fits);
    const MemoryForecast one_less =
        forecast_memory(config, {.name = "a GPU", .memory_bytes = needed - 1});
    EXPECT_FALSE(one_less.fits);
    EXPECT_THAT(one_less.problem,
                HasSubstr(refusal_of_a_start(config, largest_rank(all), needed - 1)));
    const MemoryForecast no_advice = forecast_memory(
        config, {.name = "a GPU", .memory_bytes = needed - 1}, {.is_wanted = false});
    EXPECT_FALSE(no_advice.fits);
    EXPECT_EQ(no_advice.problem, "");
  }
}

// Each line is checked by the forecast itself, at ever smaller devices.
TEST(MemoryForecast, AdviceFits) {
  TrainConfig config = config_on({1, 2, 4, 1, 1, 1, 1});
  config.remat_policy = RematPolicy::kNone;
  config.max_target_length = 512;
  const size_t whole = largest_device_bytes(
      forecast_memory(config, {.name = "a GPU", .memory_bytes = kPlenty}, {.is_wanted = false}));
  for (const double share : {0.9999, 0.996, 0.992}) {
    const PlannedDevice device{
        .name = "a GPU", .memory_bytes = static_cast<size_t>(share * static_cast<double>(whole))};
    double last = 0;
    const auto seconds = [](const TrainConfig& it) { return 1.0 * it.gradient_accumulation_steps; };
    const std::string problem =
        forecast_memory(config, device, {.seconds_per_token = seconds}).problem;
    const std::vector<std::string> lines = change_lines(problem);
    EXPECT_FALSE(lines.empty()) << share << problem;
    for (const std::string& line : lines) {
      if (line.find('#') != std::string::npos) continue;
      const TrainConfig changed = with_words(config, line);
      EXPECT_TRUE(validate(changed).ok()) << line;
      EXPECT_TRUE(forecast_memory(changed, device, {.is_wanted = false}).fits) << line;
      EXPECT_LE(last, seconds(changed)) << "the fastest is the first: " << problem;
      last = seconds(changed);
    }
  }
}

// Applies words to a job whose per_device_batch_size follows from its global_batch_size.
TrainConfig with_global_words(const TrainConfig& config, const std::string& line) {
  const auto slices = [](const TrainConfig& it) {
    return mesh_of(it.mesh).group_size({.axes = kBatchAxes});
  };
  int64_t global =
      int64_t{config.per_device_batch_size} * config.gradient_accumulation_steps * slices(config);
  std::string others;
  for (const absl::string_view word : absl::StrSplit(line.substr(0, line.find('#')), ' ')) {
    absl::string_view value = word;
    if (absl::ConsumePrefix(&value, "global_batch_size=")) {
      EXPECT_TRUE(absl::SimpleAtoi(value, &global)) << line;
    } else {
      absl::StrAppend(&others, " ", word);
    }
  }
  TrainConfig changed = with_words(config, others);
  const int64_t shares = int64_t{slices(changed)} * changed.gradient_accumulation_steps;
  EXPECT_EQ(global % shares, 0) << line;
  changed.per_device_batch_size = static_cast<int32_t>(global / shares);
  return changed;
}

TEST(MemoryForecast, AdviceForAGlobalBatchCanBePasted) {
  TrainConfig staged = config_on({1, 2, 4, 1, 1, 1, 1});
  staged.remat_policy = RematPolicy::kNone;
  staged.max_target_length = 512;
  TrainConfig wide = config_on({1, 1, 4, 1, 1, 1, 1});  // fits on more ranks, with a larger batch
  wide.model.emb_dim = 512;
  wide.pipeline_microbatches = 1;
  size_t all = 0;
  bool has_global = false;
  for (const TrainConfig& config : {staged, wide}) {
    const size_t whole = largest_device_bytes(
        forecast_memory(config, {.name = "a GPU", .memory_bytes = kPlenty}, {.is_wanted = false}));
    for (const double share : {0.9999, 0.99, 0.98, 0.97, 0.96}) {
      const PlannedDevice device{
          .name = "a GPU", .memory_bytes = static_cast<size_t>(share * static_cast<double>(whole))};
      const std::string problem =
          forecast_memory(config, device, {.keeps_global_batch = true}).problem;
      EXPECT_THAT(problem, Not(HasSubstr("per_device_batch_size=")));
      for (const std::string& line : change_lines(problem)) {
        if (line.find("layer") != std::string::npos) continue;
        const TrainConfig changed = with_global_words(config, line);
        EXPECT_TRUE(validate(changed).ok()) << line;
        EXPECT_TRUE(forecast_memory(changed, device, {.is_wanted = false}).fits) << line;
        has_global = has_global || line.find("global_batch_size=") != std::string::npos;
        ++all;
      }
    }
  }
  EXPECT_GT(all, 3U);
  EXPECT_TRUE(has_global) << "more ranks have a larger batch";
}

TEST(MemoryForecast, MoreMachinesAreACompileTopology) {
  TrainConfig config = config_on({1, 1, 4, 1, 1, 1, 1});
  config.model.emb_dim = 512;
  const size_t whole = largest_device_bytes(
      forecast_memory(config, {.name = "a GPU", .memory_bytes = kPlenty}, {.is_wanted = false}));
  const std::string problem =
      forecast_memory(config, {.name = "a GPU", .memory_bytes = whole - 1}, {.planned_slices = 3})
          .problem;
  EXPECT_THAT(problem, HasSubstr("\n  compile_topology_num_slices=6 dcn_fsdp_parallelism=2  # 2 "
                                 "nodes\n"));
}

TEST(MemoryForecast, OnlyThePlanCountsWithoutABackend) {
  const TrainConfig config = config_on({2, 1, 2, 1, 1, 1, 1});
  const MemoryForecast forecast =
      forecast_memory(config, {.name = "TPU", .memory_bytes = kPlenty, .has_backend = false});
  EXPECT_EQ(forecast.stages[0].device_bytes, planned_bytes(config, 0));
}

// A checkpoint has every element once. Shares of an odd number of ranks are rounded up.
TEST(MemoryForecast, ACheckpointHasThePartsOfAllRanks) {
  for (const int32_t ranks : {1, 4, 6}) {
    for (const Degrees& degrees : factorisations(ranks)) {
      const TrainConfig config = config_on(degrees);
      if (!validate(config).ok()) continue;
      const Mesh mesh = mesh_of(config.mesh);
      size_t parts = 0;
      for (const size_t bytes : saved_bytes_by_node(config, mesh)) parts += bytes;
      const size_t whole = checkpoint_bytes(config);
      if (mesh.degree(MeshAxis::kFsdp) % 3 == 0) {
        EXPECT_THAT(parts, AllOf(Ge(whole), Lt(whole + whole / 100))) << mesh.to_string();
      } else {
        EXPECT_EQ(whole, parts) << mesh.to_string();
      }
    }
  }
}

TEST(MemoryForecast, JsonHasEveryStage) {
  const TrainConfig config = config_on({1, 2, 1, 1, 1, 1, 1});
  const nlohmann::json json =
      to_json(forecast_memory(config, {.name = "a GPU", .memory_bytes = 1000}));
  ASSERT_EQ(json["stages"].size(), 2U);
  EXPECT_EQ(json["stages"][1]["stage"], 1);
  EXPECT_EQ(json["memory_bytes"], 1000);
  EXPECT_EQ(json["fits"], false);
  EXPECT_THAT(json["problem"].get<std::string>(), HasSubstr("out of memory: rank "));
}

}  // namespace
}  // namespace muster::trainer
