// The device memory that a training takes, as the driver counts it for all allocations: its plan,
// the backend's scratch and the reserve (device_reserve.h). Other processes on the device disturb
// this test.
#include <gmock/gmock.h>

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tests/gpu/both_backends.h"
#include "tests/gpu/gpu_device.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/rank/training_plan.h"
#include "trainer_core/startup/device_reserve.h"

namespace muster::trainer {
namespace {

using testing::Each;

constexpr double kBound = 0.02;
// The driver's granularity of allocation.
constexpr double kDriverPage = 2 << 20;

// A model of some gigabytes, beside which the driver's granularity is small.
TrainConfig config_of_memory() {
  TrainConfig config = tiny_config(1);
  config.steps = 5;
  config.hardware = Hardware::kGpu;
  config.per_device_batch_size = 2;
  config.max_target_length = 8;
  if (!large_shapes()) return config;
  config.dtype = ComputeType::kBfloat16;
  config.model.vocab_size = 64'000;
  config.model.emb_dim = 1024;
  config.model.head_dim = 64;
  config.model.mlp_dim = 4096;
  config.max_target_length = 256;
  return config;
}

// Returns the memory used on the whole device after each step of a run.
std::vector<double> used_bytes(const TrainConfig& config, double free_before) {
  std::vector<double> used;
  const RunResult result = run(config, [&](int, const StepRecord&, std::atomic<bool>&) {
    used.push_back(free_before - static_cast<double>(backends().device.free_bytes()));
  });
  EXPECT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  return used;
}

TEST(MemoryOfATraining, EqualsPlanScratchAndReserve) {
  const TrainConfig config = config_of_memory();
  const auto planned = static_cast<double>(
      plan_training(config, 1, staging_of(config, 0), 0).memory().device_bytes());
  take_devices();
  const auto before = static_cast<double>(backends().device.free_bytes());
  const std::vector<double> first = used_bytes(config, before);
  ASSERT_EQ(first.size(), static_cast<size_t>(config.steps));
  const auto own = static_cast<double>(take_devices().at(0)->own_bytes());
  // The rest that the first run leaves on the device is code, which is loaded once.
  const double between = before - static_cast<double>(backends().device.free_bytes());
  const std::vector<double> second = used_bytes(config, before - between);
  ASSERT_EQ(second.size(), static_cast<size_t>(config.steps));
  take_devices();

  const auto record = [](const char* what, double bytes) {
    RecordProperty(what, std::to_string(static_cast<int64_t>(bytes)));
  };
  record("planned_bytes", planned);
  record("scratch_bytes", own);
  record("kernel_code_reserve_bytes", kKernelCode.bytes);
  record("kernel_code_bytes", between);
  record("used_after_first_step_bytes", first.front());
  record("used_at_end_bytes", first.back());
  record("used_with_code_loaded_bytes", second.back());
  EXPECT_LE(between, kKernelCode.bytes);
  const auto graphs = static_cast<double>(graph_bytes(config));  // captured in the second step
  constexpr size_t kCaptured = 1;
  record("graph_reserve_bytes", graphs);
  record("graph_bytes", second[kCaptured] - second.front());
  EXPECT_LE(first.back(), (1 + kBound) * (planned + own + graphs + kKernelCode.bytes));
  EXPECT_LE(second.back() - second.front(), graphs + kDriverPage);
  EXPECT_NEAR(second.front(), planned + own, kBound * (planned + own));
  EXPECT_EQ(second[kCaptured], second.back()) << "steps allocate";
}

}  // namespace
}  // namespace muster::trainer
