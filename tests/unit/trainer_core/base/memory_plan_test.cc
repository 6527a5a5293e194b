#include "trainer_core/base/memory_plan.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/locked_memory.h"
#include "trainer_core/base/tensor.h"

namespace muster::trainer {
namespace {

TEST(MemoryPlan, BuffersAreAlignedAndCounted) {
  MemoryPlan plan;
  const BufferId a = plan.add("a", MemoryCategory::kParameters, 100);
  const BufferId b = plan.add("b", MemoryCategory::kActivations, 1);
  const BufferId c = plan.add("c", MemoryCategory::kParameters, 64);
  EXPECT_EQ(plan.at(a).offset, 0U);
  EXPECT_EQ(plan.at(b).offset, 128U);
  EXPECT_EQ(plan.at(c).offset, 192U);
  EXPECT_EQ(plan.total_bytes(), 256U);
  EXPECT_EQ(plan.category_bytes(MemoryCategory::kParameters), 164U);
  EXPECT_EQ(plan.category_bytes(MemoryCategory::kGradients), 0U);
}

TEST(MemoryPlan, OverlaidBuffersShareMemory) {
  MemoryPlan plan;
  plan.add("before", MemoryCategory::kWorkspace, 64);
  BufferId small, large, larger;
  plan.overlay([&] { small = plan.add("small", MemoryCategory::kWorkspace, 10); },
               [&] {
                 large = plan.add("large", MemoryCategory::kWorkspace, 100);
                 larger = plan.add("larger", MemoryCategory::kWorkspace, 200);
               },
               [] {});
  const BufferId after = plan.add("after", MemoryCategory::kWorkspace, 1);
  EXPECT_EQ(plan.at(small).offset, 64U);
  EXPECT_EQ(plan.at(large).offset, 64U);
  EXPECT_EQ(plan.at(larger).offset, 192U);
  EXPECT_EQ(plan.at(after).offset, 448U);
  EXPECT_EQ(plan.total_bytes(), 512U);
  EXPECT_EQ(plan.category_bytes(MemoryCategory::kWorkspace), 64U + 100 + 200 + 1);
}

TEST(Arena, IsZeroedAndExactlyThePlan) {
  MemoryPlan plan;
  const BufferId a = plan.add("a", MemoryCategory::kWorkspace, 40);
  const BufferId b = plan.add("b", MemoryCategory::kWorkspace, 12);
  const Arena arena(plan);
  EXPECT_EQ(arena.bytes(), plan.total_bytes());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.f32(a)) % kBufferAlignment, 0U);
  EXPECT_EQ(arena.f32(b) - arena.f32(a), 16);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(arena.f32(a)[i], 0.0F);
}

// On a device what lies behind begin_host() is memory of its own, which the host may touch.
TEST(Arena, OfADevice) {
  MemoryPlan plan;
  const BufferId a = plan.add("a", MemoryCategory::kWorkspace, 40);
  const BufferId b = plan.add("b", MemoryCategory::kWorkspace, 100);
  plan.begin_host();
  const BufferId c = plan.add("c", MemoryCategory::kOffloaded, 12);
  const BufferId d = plan.add("d", MemoryCategory::kCheckpoint, 12);
  EXPECT_EQ(plan.device_bytes(), 192U);
  EXPECT_EQ(plan.total_bytes(), 320U);
  const LockedMemory device;
  const Arena arena(plan, device);
  EXPECT_EQ(arena.bytes(), 320U);
  EXPECT_TRUE(device.holds(arena.buffer(a)) && device.holds(arena.buffer(b)));
  EXPECT_FALSE(device.holds(arena.buffer(c)) || device.holds(arena.buffer(d)));
  EXPECT_EQ(arena.f32(b) - arena.f32(a), 16);
  EXPECT_EQ(arena.f32(d) - arena.f32(c), 16);
  EXPECT_EQ(arena.f32(d)[0], 0.0F);
}

TEST(Arena, OfAnEmptyPlan) { EXPECT_EQ(Arena(MemoryPlan()).bytes(), 0U); }

TEST(ArenaDeathTest, UnknownBuffer) {
  MemoryPlan plan;
  const BufferId only = plan.add("only", MemoryCategory::kWorkspace, 8);
  EXPECT_DEATH(Arena(plan).buffer(BufferId()), "no buffer of 1");
  EXPECT_DEATH(plan.at(BufferId()), "no buffer of 1");
  EXPECT_DEATH(Arena(MemoryPlan()).buffer(only), "no buffer of 0");
}

TEST(Tensor, ReportsItsSize) {
  float data[24];
  const Tensor tensor = Tensor::f32(data, {2, 3, 4});
  EXPECT_EQ(tensor.elements(), 24);
  EXPECT_EQ(tensor.bytes(), 96U);
  EXPECT_EQ(tensor.dim(1), 3);
}

TEST(TensorDeathTest, WrongType) {
  int32_t ids[2];
  const Tensor tensor = Tensor::i32(ids, {2});
  EXPECT_EQ(tensor.i32(), ids);
  EXPECT_DEATH(tensor.f32(), "not an fp32 tensor");
}

}  // namespace
}  // namespace muster::trainer
