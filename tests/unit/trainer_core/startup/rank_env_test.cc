#include "trainer_core/startup/rank_env.h"

#include <gmock/gmock.h>

#include <map>

#include <gtest/gtest.h>

#include "trainer_core/startup/load_config.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

absl::StatusOr<RankEnv> read(const std::map<std::string, std::string>& values) {
  return read_rank_env([&](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found != values.end() ? std::optional(found->second) : std::nullopt;
  });
}

TEST(RankEnv, DefaultsAreRankZeroOfOne) {
  const auto env = read({});
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->rank, 0);
  EXPECT_EQ(env->world_size, 1);
  EXPECT_EQ(env->local_world_size, 1);
  EXPECT_EQ(env->progress_page, "");
}

TEST(RankEnv, ReadsWhatTheWorkerSets) {
  const auto env = read({{"RANK", "5"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "4"},
                         {"MUSTER_JOB", "12"},
                         {"MUSTER_ATTEMPT", "3"},
                         {"MUSTER_INCARNATION", "18446744073709551615"},
                         {"MUSTER_CHECKPOINT_STEP", "40"},
                         {"MUSTER_PROGRESS_PAGE", "/p"},
                         {"MUSTER_RENDEZVOUS", "host:1"},
                         {"MUSTER_BIND_ADDRESS", "10.0.0.1"},
                         {"MUSTER_COLLECTIVE_TIMEOUT_MS", "5"}});
  ASSERT_TRUE(env.ok()) << env.status();
  const ProgressIdentity identity = env->identity(100);
  EXPECT_EQ(identity.job, 12U);
  EXPECT_EQ(identity.attempt, 3U);
  EXPECT_EQ(identity.incarnation, ~uint64_t{0});
  EXPECT_EQ(identity.rank, 5);
  EXPECT_EQ(identity.local_rank, 1);
  EXPECT_EQ(identity.world_size, 8);
  EXPECT_EQ(identity.total_steps, 100);
  EXPECT_EQ(env->checkpoint_step, 40U);
  EXPECT_EQ(env->bind_address, "10.0.0.1");
  EXPECT_EQ(env->collective_timeout.count(), 5);
}

TEST(RankEnv, HasGpusOnlyIfAWorkerAssignedThem) {
  EXPECT_TRUE(read({{"MUSTER_JOB", "12"}, {"CUDA_VISIBLE_DEVICES", "GPU-1"}})->has_gpus);
  EXPECT_FALSE(read({{"MUSTER_JOB", "12"}, {"CUDA_VISIBLE_DEVICES", ""}})->has_gpus);
  EXPECT_FALSE(read({{"MUSTER_JOB", "12"}})->has_gpus);
  EXPECT_FALSE(read({{"CUDA_VISIBLE_DEVICES", "0"}})->has_gpus);  // not assigned by a worker
}

TEST(RankEnv, ThreadsComeFromTheConfigTheEnvironmentOrTheSharedCores) {
  TrainConfig config;
  RankEnv alone;
  EXPECT_EQ(read({})->threads, 0);
  const int32_t cores = threads_per_rank(config, alone);
  EXPECT_GE(cores, 1);
  RankEnv one_of_many;
  one_of_many.local_world_size = 1'000'000;
  EXPECT_EQ(threads_per_rank(config, one_of_many), 1);
  const auto env = read({{"OMP_NUM_THREADS", "7,2"}});
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(threads_per_rank(config, *env), 7);
  config.threads = 3;
  EXPECT_EQ(threads_per_rank(config, *env), 3);
}

TEST(RankEnv, BadValuesNameTheVariable) {
  const auto problem = [](const std::map<std::string, std::string>& values) {
    return std::string(read(values).status().message());
  };
  EXPECT_THAT(problem({{"RANK", "1"}}),
              HasSubstr("RANK is \"1\"; it must be a number from 0 to 0"));
  EXPECT_THAT(problem({{"WORLD_SIZE", "0"}}), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(problem({{"WORLD_SIZE", "2x"}}), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(problem({{"WORLD_SIZE", "2"}}), HasSubstr("MUSTER_RENDEZVOUS"));
  EXPECT_THAT(problem({{"OMP_NUM_THREADS", "0,4"}}),
              HasSubstr("OMP_NUM_THREADS is \"0\"; it must be a number from 1 to 1024"));
  EXPECT_THAT(problem({{"OMP_NUM_THREADS", ""}}), HasSubstr("OMP_NUM_THREADS"));
  EXPECT_THAT(problem({{"MUSTER_JOB", "-1"}}), HasSubstr("MUSTER_JOB"));
  EXPECT_THAT(problem({{"MUSTER_COLLECTIVE_TIMEOUT_MS", "0"}}),
              HasSubstr("MUSTER_COLLECTIVE_TIMEOUT_MS"));
}

}  // namespace
}  // namespace muster::trainer
