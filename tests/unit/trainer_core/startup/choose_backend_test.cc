// For builds without CUDA; tests/gpu/emulated tests the others.
#include "trainer_core/startup/choose_backend.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

bool has_gpu() { return gpu_backend({}).ok(); }

TEST(ChooseBackend, TheCpuIsAlwaysAvailable) {
  const auto chosen = choose_backend(Hardware::kCpu, 3, {});
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->hardware, Hardware::kCpu);
  EXPECT_EQ(chosen->backend->threads(), 3);
  EXPECT_TRUE(chosen->backend->memory().is_host());
  EXPECT_EQ(chosen->backend->description(), "CPU, 3 threads");
  EXPECT_EQ(chosen->reason, "");
}

TEST(ChooseBackend, WithoutAGpuTheErrorNamesTheKeyAndAutoTakesTheCpu) {
  if (has_gpu()) GTEST_SKIP() << "a GPU is here";
  const absl::Status status = choose_backend(Hardware::kGpu, 1, {}).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("hardware=gpu: "), HasSubstr("or train with hardware=cpu")));
  const auto chosen = choose_backend(Hardware::kAuto, 1, {});
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->hardware, Hardware::kCpu);
  EXPECT_THAT(chosen->reason, HasSubstr("backend: CPU, 1 thread (hardware=auto: "));
}

}  // namespace
}  // namespace muster::trainer
