// Refusals for devices that this machine does not have, and whether their suggestions fit.
#include "trainer_core/startup/device_room.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

#include "tests/unit/trainer_core/setting_words.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/rank/training_plan.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A config whose activations take most of the memory.
TrainConfig config_for_gpus() {
  TrainConfig config = along_fsdp(tiny_config(2));
  config.hardware = Hardware::kGpu;
  config.cuda_graphs = false;
  config.remat_policy = RematPolicy::kNone;
  config.per_device_batch_size = 8;
  config.max_target_length = 512;
  return config;
}
size_t plan_bytes(const TrainConfig& config, int32_t rank) {
  return plan_training(config, 1, staging_of(config, rank), rank).memory().device_bytes();
}
DeviceRoom room_of(size_t free_bytes) {
  return {
      .device = "a device", .free_bytes = free_bytes, .beside = {{"context", 600}, {"code", 400}}};
}
std::string problem(const TrainConfig& config, std::vector<int32_t> ranks, size_t free_bytes) {
  const absl::Status status = check_device_room(config, ranks, room_of(free_bytes)).status();
  EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kResourceExhausted) << status;
  return std::string(status.message());
}

TEST(DeviceRoom, CountsAllRanksOfTheDeviceAndTheirReserves) {
  const TrainConfig config = config_for_gpus();
  const size_t one = plan_bytes(config, 0) + 1000;
  const size_t both = one + plan_bytes(config, 1) + 1000;
  EXPECT_EQ(problem(config, {0}, one), "");
  EXPECT_THAT(problem(config, {0}, one - 1), HasSubstr("rank 0 needs"));
  EXPECT_EQ(problem(config, {0, 1}, both), "");
  EXPECT_EQ(check_device_room(config, std::vector<int32_t>{1, 0}, room_of(both)).value(),
            (std::vector<size_t>{both - one - 1000, one - 1000}))
      << "who allocates need not plan again";
  EXPECT_THAT(problem(config, {0, 1}, both - 1),
              AllOf(HasSubstr("ranks 0, 1 share a GPU and need"), HasSubstr("'s plan on a device"),
                    HasSubstr("a GPU for each rank")));
}

TEST(DeviceRoom, ReportsThePlansTable) {
  TrainConfig config = config_for_gpus();
  config.remat_policy = RematPolicy::kMinimalOffloaded;
  const std::string text = problem(config, {0}, plan_bytes(config, 0));
  for (const char* category : {"parameters", "gradients", "optimizer", "activations", "together"})
    EXPECT_THAT(text, HasSubstr(std::string("\n  ") + category));
  EXPECT_THAT(text, Not(HasSubstr("offloaded "))) << "that is not the GPU's";
}

TEST(DeviceRoom, CountsNcclForSuggestedRanks) {
  const TrainConfig config = config_for_gpus();
  DeviceRoom room = room_of(plan_bytes(config, 0) + 1000 + nccl_bytes(config));
  room.nccl = true;
  EXPECT_TRUE(check_device_room(config, std::vector<int32_t>{0}, room).ok());
  --room.free_bytes;
  const absl::Status status = check_device_room(config, std::vector<int32_t>{0}, room).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("\n  context "), HasSubstr("\n  code "), HasSubstr("\n  NCCL "),
                    HasSubstr("\n  together ")));
  // A single rank has no collectives.
  TrainConfig alone = tiny_config(1);
  alone.cuda_graphs = false;
  EXPECT_EQ(beside_plan(alone, room).size(), 2U);
  EXPECT_EQ(beside_plan(config, room).size(), 3U);
}

// Ranks with a GPU each use NCCL if it is installed.
TEST(DeviceRoom, CountsNcclForASuggestedGpuPerRank) {
  TrainConfig config = config_for_gpus();
  config.per_device_batch_size *= 64;  // too large for both ranks together, with NCCL counted
  const std::vector<int32_t> both = {0, 1};
  const size_t larger = std::max(plan_bytes(config, 0), plan_bytes(config, 1)) + 1000;
  const auto advice = [&](bool has_nccl, size_t free_bytes) {
    DeviceRoom room = room_of(free_bytes);
    room.has_nccl = has_nccl;
    return std::string(check_device_room(config, both, room).status().message());
  };
  ASSERT_GT(nccl_bytes(config), 0U);
  ASSERT_LT(nccl_bytes(config), larger);
  EXPECT_THAT(advice(false, larger), HasSubstr("a GPU for each rank"));
  EXPECT_THAT(advice(false, larger - 1), Not(HasSubstr("a GPU for each rank")));
  const size_t with_nccl = larger + nccl_bytes(config);
  EXPECT_THAT(advice(true, with_nccl), HasSubstr("a GPU for each rank"));
  EXPECT_THAT(advice(true, with_nccl - 1), Not(HasSubstr("a GPU for each rank")));
}

TEST(DeviceRoom, CountsCudaGraphs) {
  TrainConfig config = config_for_gpus();
  config.cuda_graphs = true;
  const size_t bytes = plan_bytes(config, 0) + 1000 + graph_bytes(config);
  EXPECT_EQ(problem(config, {0}, bytes), "");
  EXPECT_THAT(problem(config, {0}, bytes - 1), HasSubstr("\n  CUDA graphs "));
}

// Applies each line of a refusal to the config. Lines with a note take more than keys.
void expect_fit(const TrainConfig& config, const std::string& text, size_t free_bytes) {
  for (const std::string& line : change_lines(text)) {
    if (line.find("with a model") != std::string::npos) continue;
    const TrainConfig changed = with_words(config, line);
    EXPECT_EQ(problem(changed, {0}, free_bytes), "") << line;
  }
}

TEST(DeviceRoom, SuggestsChangesThatFit) {
  const TrainConfig config = config_for_gpus();
  const size_t bytes = plan_bytes(config, 0);
  const std::string text = problem(config, {0}, bytes);
  EXPECT_THAT(text, AllOf(HasSubstr("what would fit: per_device_batch_size=4 "
                                    "gradient_accumulation_steps=2, or remat_policy="),
                          HasSubstr(", or ici_fsdp_parallelism=4 (4 ranks)")));
  EXPECT_THAT(text, AllOf(HasSubstr("\nwhat would fit, each by itself:\n  per_device_batch_size=4"),
                          HasSubstr("\n  remat_policy="),
                          HasSubstr("\n  ici_fsdp_parallelism=4  # 4 ranks\nout of memory: ")));
  EXPECT_GE(change_lines(text).size(), 3U);
  expect_fit(config, text, bytes);
}

TEST(DeviceRoom, CombinesChangesIfNoneSuffices) {
  TrainConfig config = config_for_gpus();
  TrainConfig least = config;
  least.per_device_batch_size = 1;
  least.gradient_accumulation_steps = 8;
  least.remat_policy = RematPolicy::kFull;
  const size_t bytes = plan_bytes(least, 0) + 1000;
  TrainConfig smaller = config;
  smaller.per_device_batch_size = 1;
  ASSERT_GT(plan_bytes(smaller, 0) + 1000, bytes);
  const std::string both = problem(config, {0}, bytes);
  EXPECT_THAT(both, HasSubstr("  per_device_batch_size=1 gradient_accumulation_steps=8 "
                              "remat_policy=full\n"));
  expect_fit(config, both, bytes);
  EXPECT_THAT(
      problem(config, {0}, 2000),
      HasSubstr("; nothing was found that fits: the smallest batch with remat_policy=full"));
  // Less than all settings of these ranks need: more ranks, shorter sequences or fewer layers.
  const std::string beyond = problem(config, {0}, bytes / 2);
  EXPECT_THAT(beyond,
              HasSubstr("\n  per_device_batch_size=1 remat_policy=full max_target_length="));
  expect_fit(config, beyond, bytes / 2);
}

}  // namespace
}  // namespace muster::trainer
