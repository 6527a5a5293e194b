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

// A device's memory that counts what is allocated of the host's at once.
class CountingMemory final : public DeviceMemory {
 public:
  mutable size_t allocated_host = 0;
  mutable size_t reserved_host = 0;

  bool is_host() const override { return device_.is_host(); }
  std::shared_ptr<void> allocate(size_t bytes) const override { return device_.allocate(bytes); }
  std::shared_ptr<void> allocate_host(size_t bytes) const override {
    allocated_host += bytes;
    return device_.allocate_host(bytes);
  }
  std::shared_ptr<void> reserve_host(size_t bytes) const override {
    reserved_host += bytes;
    return device_.reserve_host(bytes);
  }
  bool holds(const void* address) const override { return device_.holds(address); }
  void download(const void* from, void* to, size_t bytes) const override {
    device_.download(from, to, bytes);
  }
  void upload(const void* from, void* to, size_t bytes) const override {
    device_.upload(from, to, bytes);
  }

 private:
  LockedMemory device_;
};

TEST(Arena, ReservesWhatADeviceDoesNotComputeWith) {
  MemoryPlan plan;
  const BufferId a = plan.add("a", MemoryCategory::kWorkspace, 64);
  plan.begin_host();
  const BufferId b = plan.add("b", MemoryCategory::kOffloaded, 128);
  plan.begin_reserved_host();
  const BufferId c = plan.add("c", MemoryCategory::kCheckpoint, 192);
  const BufferId d = plan.add("d", MemoryCategory::kCheckpoint, 64);
  const CountingMemory device;
  const Arena arena(plan, device);
  EXPECT_EQ(device.allocated_host, 128U);
  EXPECT_EQ(device.reserved_host, 256U);
  EXPECT_TRUE(device.holds(arena.buffer(a)));
  EXPECT_EQ(arena.f32(b)[0], 0.0F);
  EXPECT_EQ(arena.f32(c)[0], 0.0F);
  EXPECT_EQ(arena.f32(d) - arena.f32(c), 48);
  // In the host's own memory all of it is one allocation.
  const Arena whole(plan);
  EXPECT_EQ(whole.f32(d) - whole.f32(a), 96);
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
