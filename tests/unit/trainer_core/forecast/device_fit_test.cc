#include "trainer_core/forecast/device_fit.h"

#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/comm/local.h"
#include "trainer_core/forecast/device_bench.h"
#include "trainer_core/forecast/energy_counter.h"
#include "trainer_core/forecast/op_timer.h"
#include "trainer_core/forecast/paired_calls.h"
#include "trainer_core/forecast/step_recorder.h"
#include "trainer_core/forecast/step_run.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

TracedWork gemm_of(int64_t m, int64_t n, int64_t k, bool fp32) {
  return {.kind = WorkKind::kGemm,
          .name = "matmul",
          .bytes = 4.0 * static_cast<double>(m * k + k * n + m * n),
          .flops = 2.0 * static_cast<double>(m * n * k),
          .gemm = {.m = m, .n = n, .k = k, .fp32 = fp32}};
}

TracedWork attention_of(int64_t keys, int64_t head_dim, bool backward) {
  return {.kind = WorkKind::kAttention,
          .name = backward ? "attention_backward" : "attention",
          .flops = (backward ? 5.0 : 2.0) * 4 * static_cast<double>(keys * keys * head_dim),
          .attention = {.batch = 1,
                        .heads = 4,
                        .queries = keys,
                        .keys = keys,
                        .head_dim = head_dim,
                        .backward = backward,
                        .fp32 = true}};
}

TracedWork kernel_of(const char* name, double bytes) {
  return {.kind = WorkKind::kMemory, .name = name, .bytes = bytes};
}

// A CPU whose constants are known.
StepMachine known_machine() {
  StepMachine machine;
  machine.device = {.bf16_tflops = 0.2,
                    .fp32_tflops = 0.1,
                    .memory_gb_s = 10,
                    .node_gb_s = 3,
                    .node_latency_us = 7,
                    .host_gb_s = 5};
  machine.constants.gemm_fraction = 0.8;
  machine.constants.gemm_depth = 60;
  machine.constants.attention_forward_fraction = 0.3;
  machine.constants.attention_backward_fraction = 0.2;
  machine.constants.attention_length = 150;
  machine.constants.memory_fraction = 1;
  machine.constants.node_link_fraction = 1;
  machine.constants.kernel_shares = {{"adam", 0.7}, {"norm", 2.5}};
  return machine;
}

// Returns the measurement of a machine with these constants, with a relative error of each time.
DeviceSamples samples_of(const StepMachine& machine, double error) {
  const StepCost cost(machine.device, machine.constants);
  DeviceSamples samples{.bf16_tflops = machine.device.bf16_tflops,
                        .fp32_tflops = machine.device.fp32_tflops,
                        .memory_gb_s = machine.device.memory_gb_s,
                        .host_gb_s = machine.device.host_gb_s,
                        .kernel_seconds = 2e-6,
                        .ranks = 8};
  std::vector<TracedWork> works;
  for (const int64_t k : {64, 128, 512, 1024, 4096})
    for (const bool fp32 : {false, true}) works.push_back(gemm_of(2048, 1024, k, fp32));
  for (const int64_t keys : {128, 512, 2048})
    for (const bool backward : {false, true})
      for (const int64_t head_dim : {64, 128})
        works.push_back(attention_of(keys, head_dim, backward));
  works.push_back(kernel_of("adam", 4e6));
  works.push_back(kernel_of("norm", 1e6));
  double sign = 1;
  for (const TracedWork& work : works) {
    samples.works.push_back({work, cost.seconds(work, {}) * (1 + sign * error)});
    sign = -sign;
  }
  StepTrace trace;
  trace.groups = {{.name = "fsdp", .ranks = 8}};
  // The forecast has a tree for small reductions and a ring for large ones.
  for (const double bytes : {4e3, 1e5, 1e6, 3e7}) {
    const TracedWork work{.kind = WorkKind::kCollective,
                          .bytes = bytes,
                          .collective = CollectiveKind::kAllReduce,
                          .group = 0};
    samples.reductions.push_back({bytes, cost.seconds(work, trace) * (1 + sign * error)});
    sign = -sign;
  }
  return samples;
}

void expect_near(const StepMachine& found, const StepMachine& known, double relative) {
  const auto near = [&](double value, double expected, const char* what) {
    EXPECT_NEAR(value / expected, 1, relative) << what;
  };
  near(found.constants.gemm_fraction, known.constants.gemm_fraction, "gemm_fraction");
  near(found.constants.gemm_depth, known.constants.gemm_depth, "gemm_depth");
  near(found.constants.attention_forward_fraction, known.constants.attention_forward_fraction,
       "attention_forward_fraction");
  near(found.constants.attention_backward_fraction, known.constants.attention_backward_fraction,
       "attention_backward_fraction");
  near(found.constants.attention_length, known.constants.attention_length, "attention_length");
  near(found.device.node_gb_s, known.device.node_gb_s, "node_gb_s");
  near(found.device.node_latency_us, known.device.node_latency_us, "node_latency_us");
  for (const auto& [name, share] : known.constants.kernel_shares)
    near(found.constants.kernel_shares.at(name), share, name.c_str());
}

TEST(FitDevice, RecoversKnownConstants) {
  const StepMachine known = known_machine();
  const StepMachine found = fit_device(samples_of(known, 0));
  expect_near(found, known, 1e-6);
  EXPECT_EQ(found.constants.kernel_us, 2);
  EXPECT_EQ(found.device.host_gb_s, 5);
  expect_near(fit_device(samples_of(known, 0.02)), known, 0.35);
}

// The forecast of the fitted machine is what counts: errors of the samples average out.
TEST(FitDevice, ForecastsWorkThatWasNotMeasured) {
  const StepMachine known = known_machine(), found = fit_device(samples_of(known, 0.02));
  const StepCost expected(known.device, known.constants), cost(found.device, found.constants);
  for (const TracedWork& work : {gemm_of(512, 512, 256, true), gemm_of(4096, 4096, 2048, false),
                                 attention_of(1024, 96, false), kernel_of("norm", 5e5)})
    EXPECT_NEAR(cost.seconds(work, {}) / expected.seconds(work, {}), 1, 0.04) << work.name;
}

TEST(FitDevice, AFastCurveRaisesThePeak) {
  StepMachine known = known_machine();
  known.constants.gemm_fraction = 1;
  DeviceSamples samples = samples_of(known, 0);
  samples.fp32_tflops /= 1.25;
  samples.bf16_tflops /= 1.25;
  const StepMachine found = fit_device(samples);
  EXPECT_NEAR(found.device.fp32_tflops, known.device.fp32_tflops, 1e-9);
  EXPECT_NEAR(found.constants.gemm_fraction, 1, 1e-9);
}

TEST(FitDevice, KeepsDefaultsOfWhatWasNotMeasured) {
  const StepMachine found = fit_device({.bf16_tflops = 1,
                                        .fp32_tflops = 1,
                                        .memory_gb_s = 1,
                                        .host_gb_s = 1,
                                        .works = {{attention_of(64, 64, false), 1}}});
  const StepConstants defaults;
  EXPECT_EQ(found.constants.gemm_fraction, defaults.gemm_fraction);
  EXPECT_EQ(found.constants.attention_forward_fraction, defaults.attention_forward_fraction)
      << "the backward pass was not measured";
  EXPECT_EQ(found.device.node_gb_s, 0);
  EXPECT_TRUE(found.constants.kernel_shares.empty());
}

// A real step calls the operations that the forecast records, in the same order. The measurement
// of a device relies on it, and ends with an error if they part.
TEST(PairCalls, ARealStepHasTheRecordedOperations) {
  std::vector<TrainConfig> configs(1, tiny_config(1));
  configs[0].remat_policy = RematPolicy::kFull;
  configs.push_back(configs[0]);
  configs.back().dtype = ComputeType::kBfloat16;
  configs.back().remat_policy = RematPolicy::kNone;
  configs.push_back(configs[0]);
  configs.back().model.norm_type = NormType::kLayer;
  configs.back().model.qkv_bias = configs.back().model.out_bias = true;
  configs.back().gradient_accumulation_steps = 2;
  for (const TrainConfig& config : configs) {
    const auto trace = record_step(config, 0);
    ASSERT_TRUE(trace.ok()) << trace.status();
    const auto timed = std::make_shared<TimedBackend>(cpu_backend(1));
    ProcessGroups groups(LocalWorld(1, std::chrono::minutes(1)).join(0), mesh_of(config.mesh),
                         nullptr);
    RankModel model(config, timed, Staging::kNo, groups, nullptr);
    timed->timer().take();
    const auto tokens = static_cast<size_t>(model.plan().model.token_count());
    ASSERT_TRUE(run_step(config, model, groups, {.tokens = std::vector<int32_t>(tokens)}).ok());
    std::vector<TimedCall> calls = timed->timer().take();
    const auto paired = pair_calls(*trace, calls, 0, 1e3);
    ASSERT_TRUE(paired.ok()) << paired.status();
    EXPECT_EQ(paired->size(), calls.size());
    for (const MeasuredWork& one : *paired) EXPECT_GT(one.seconds, 0) << one.work.name;
    calls.pop_back();
    EXPECT_THAT(pair_calls(*trace, calls, 0, 1e3).status().message(),
                HasSubstr("of a step is none"));
    calls.assign(paired->size() + 1, {});
    calls.front().name = "adam";
    EXPECT_THAT(pair_calls(*trace, calls, 0, 1e3).status().message(),
                HasSubstr("operation 0 of a step is adam, and the recording has"));
  }
}

// Eight models share 80 s. A model whose first step takes 1 s runs all steps.
TEST(StepsWithin, DividesTheTimeOverTheModels) {
  EXPECT_EQ(steps_within(80, 8, 1, 5), 5);
  EXPECT_EQ(steps_within(80, 8, 0.001, 5), 5);
  EXPECT_EQ(steps_within(80, 8, 2, 5), 3) << "6 s of 10 s";
  EXPECT_EQ(steps_within(24, 8, 1, 5), 2) << "3 s with the first step";
  EXPECT_EQ(steps_within(80, 8, 20, 5), 1) << "a slow machine has one step that counts";
  EXPECT_EQ(steps_within(-5, 2, 1, 5), 1) << "the time is over";
}

TEST(EnergyCounter, AddsThePackagesAndTheirOverflow) {
  const TempFolder root;
  const auto set = [&](const std::string& zone, const std::string& name, const char* energy) {
    std::filesystem::create_directories(root.file(zone));
    write_file(root.file(zone + "/name"), name + "\n");
    write_file(root.file(zone + "/energy_uj"), energy);
    write_file(root.file(zone + "/max_energy_range_uj"), "1000000000\n");
  };
  const Instant begin{}, end = begin + std::chrono::seconds(10);
  EnergyCounter counter(root.path());
  counter.start(begin);
  EXPECT_EQ(counter.watts(end), std::nullopt) << "no counters";
  set("intel-rapl:0", "package-0", "5000000");
  set("intel-rapl:1", "package-1", "900000000");
  set("intel-rapl:0:0", "core", "1");
  // The same package by another interface, which counts the same energy.
  set("intel-rapl-mmio:0", "package-0", "7000000");
  counter.start(begin);
  set("intel-rapl:0", "package-0", "805000000");  // 800 J
  set("intel-rapl:1", "package-1", "100000000");  // 200 J, over the end of the counter
  set("intel-rapl:0:0", "core", "900000000");
  set("intel-rapl-mmio:0", "package-0", "807000000");
  ASSERT_TRUE(counter.watts(end).has_value());
  EXPECT_DOUBLE_EQ(*counter.watts(end), 100);
  EXPECT_EQ(counter.watts(begin), std::nullopt);
  write_file(root.file("intel-rapl:1/energy_uj"), "none");
  EXPECT_EQ(counter.watts(end), std::nullopt) << "a counter that cannot be read";
}

}  // namespace
}  // namespace muster::trainer
