#include "jobspec/precision_keys.h"

#include <gmock/gmock.h>

#include "tests/unit/jobspec/config_files.h"

namespace muster::jobspec {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using trainer::ComputeType;

class PrecisionKeys : public ConfigFiles {
 protected:
  // A run on this machine.
  static LaunchOptions here(std::optional<double> speed, int32_t gpus = 0) {
    LaunchOptions launch = options();
    launch.own_workers = true;
    launch.cpu_bfloat16_speed = speed;
    launch.node_gpus = gpus;
    return launch;
  }
  static ComputeType dtype(const LaunchOptions& launch, std::vector<std::string> overrides = {}) {
    const auto job = resolve(std::move(overrides), launch);
    EXPECT_TRUE(job.ok()) << job.status();
    return job->train.dtype;
  }
};

TEST_F(PrecisionKeys, TheSpeedOfTheCpuDecidesOnTheDefault) {
  EXPECT_EQ(dtype(here(1.7)), ComputeType::kBfloat16);
  EXPECT_EQ(dtype(here(1)), ComputeType::kBfloat16);
  EXPECT_EQ(dtype(here(0.63)), ComputeType::kFloat32);
  EXPECT_EQ(dtype(here(std::nullopt)), ComputeType::kFloat32);
  EXPECT_EQ(dtype(here(0.63), {"hardware=cpu", "model_name=fuji-test"}), ComputeType::kFloat32);
  const auto job = resolve({}, here(0.63));
  EXPECT_THAT(job->warnings,
              Contains(HasSubstr("bfloat16 reaches 0.63 of its speed; dtype=bfloat16 trains")));
  EXPECT_THAT(resolve({}, here(0.999))->warnings,
              Contains(HasSubstr("bfloat16 reaches 0.99 of its speed")));
  EXPECT_THAT(resolve({}, here(1.7))->warnings, Not(Contains(HasSubstr("dtype"))));
}

TEST_F(PrecisionKeys, WhatTheUserSetsStays) {
  EXPECT_EQ(dtype(here(0.63), {"dtype=bfloat16"}), ComputeType::kBfloat16);
  EXPECT_EQ(dtype(here(1.7), {"dtype=float32"}), ComputeType::kFloat32);
  const auto config = load({"dtype=bfloat16"});
  EXPECT_FALSE(needs_cpu_speed(*config, here(std::nullopt)));
}

// Parameters of one type, whose first moments follow unless mu_dtype is set, on any hardware.
TEST_F(PrecisionKeys, WeightsAreFloat32OrBfloat16) {
  EXPECT_EQ(resolve({})->train.weight_dtype, ComputeType::kFloat32);
  for (const char* hardware : {"hardware=cpu", "hardware=gpu"}) {
    const auto job = resolve({"weight_dtype=bfloat16", hardware});
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->train.weight_dtype, ComputeType::kBfloat16);
    EXPECT_EQ(job->train.optimizer.mu_dtype, ComputeType::kBfloat16);
    EXPECT_THAT(job->warnings, Not(Contains(HasSubstr("weight_dtype"))));
  }
  EXPECT_THAT(error_of(load({"weight_dtype=int8"})), HasSubstr("weight_dtype=bfloat16"));
}

TEST_F(PrecisionKeys, MatmulPrecisionHasJaxsNames) {
  using trainer::MatmulPrecision;
  const auto precision = [](const std::string& value) {
    const auto job = resolve({"matmul_precision=" + value});
    EXPECT_TRUE(job.ok()) << job.status();
    EXPECT_THAT(job->warnings, Not(Contains(HasSubstr("matmul_precision"))));
    return job->train.matmul_precision;
  };
  EXPECT_EQ(resolve({})->train.matmul_precision, MatmulPrecision::kDefault);
  EXPECT_EQ(precision("default"), MatmulPrecision::kDefault);
  EXPECT_EQ(precision("high"), MatmulPrecision::kHigh);
  EXPECT_EQ(precision("tensorfloat32"), MatmulPrecision::kHigh);
  EXPECT_EQ(precision("highest"), MatmulPrecision::kHighest);
  EXPECT_EQ(precision("float32"), MatmulPrecision::kHighest);
  EXPECT_THAT(error_of(load({"matmul_precision=precise"})), HasSubstr("matmul_precision=highest"));
}

TEST_F(PrecisionKeys, GpusHaveBfloat16) {
  EXPECT_EQ(dtype(here(std::nullopt, 8)), ComputeType::kBfloat16);
  EXPECT_EQ(dtype(here(std::nullopt), {"hardware=gpu"}), ComputeType::kBfloat16);
  EXPECT_EQ(dtype(here(0.63, 8), {"hardware=cpu"}), ComputeType::kFloat32);
}

TEST_F(PrecisionKeys, OtherMachinesAreNotMeasured) {
  EXPECT_EQ(dtype(options()), ComputeType::kBfloat16);
  EXPECT_EQ(dtype(options(), {"hardware=cpu"}), ComputeType::kFloat32);
  const auto config = load({"hardware=cpu"});
  EXPECT_FALSE(needs_cpu_speed(*config, options()));
  EXPECT_TRUE(needs_cpu_speed(*config, here(std::nullopt)));
}

// A plan for CPUs chooses as a run there would, and states the choice.
TEST_F(PrecisionKeys, APlanChoosesByTheSpeedOfItsCpu) {
  const auto planned = [](std::optional<double> speed) {
    LaunchOptions launch = options();
    launch.planned_cpu.name = "the CPU of compile_topology=own";
    launch.cpu_bfloat16_speed = speed;
    return launch;
  };
  const auto fast = resolve({"hardware=cpu"}, planned(1.25));
  EXPECT_EQ(fast->train.dtype, ComputeType::kBfloat16);
  EXPECT_THAT(fast->warnings,
              Contains("dtype is bfloat16, as a run there would choose: on the CPU "
                       "of compile_topology=own it reaches 1.25 of float32's speed"));
  const auto slow = resolve({"hardware=cpu"}, planned(0.5));
  EXPECT_EQ(slow->train.dtype, ComputeType::kFloat32);
  EXPECT_THAT(slow->warnings,
              Contains(HasSubstr("dtype is float32, as a run there would choose: on the CPU of "
                                 "compile_topology=own bfloat16 reaches 0.50 of its speed")));
  EXPECT_THAT(resolve({"hardware=cpu", "dtype=bfloat16"}, planned(0.5))->warnings,
              Not(Contains(HasSubstr("dtype"))));
  EXPECT_TRUE(needs_cpu_speed(*load({"hardware=cpu"}), planned(std::nullopt)));
}

TEST_F(PrecisionKeys, AnOpenDegreeMakesARankOfEachGpu) {
  const auto ranks = [](std::vector<std::string> overrides, const LaunchOptions& launch) {
    const auto job = resolve(std::move(overrides), launch);
    return job.ok() ? job->mesh.to_string() : std::string(job.status().message());
  };
  EXPECT_EQ(ranks({}, here(1, 8)), "fsdp=8");
  EXPECT_EQ(ranks({"ici_tensor_parallelism=2"}, here(1, 8)), "fsdp=4 tensor=2");
  EXPECT_EQ(ranks({"ici_fsdp_parallelism=4"}, here(1, 8)), "fsdp=4");
  EXPECT_THAT(ranks({"ici_tensor_parallelism=3"}, here(1, 8)), HasSubstr("8 ranks per node"));
  LaunchOptions two = here(1, 8);
  two.ranks_per_node = 2;
  EXPECT_EQ(ranks({}, two), "fsdp=2");
}

}  // namespace
}  // namespace muster::jobspec
