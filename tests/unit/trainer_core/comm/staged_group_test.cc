// Collectives of device buffers give the same results as those of host buffers.
#include "trainer_core/comm/staged_group.h"

#include "tests/unit/trainer_core/comm/device_collectives.h"
#include "tests/unit/trainer_core/locked_memory.h"
#include "trainer_core/comm/local.h"
#include "trainer_core/comm/transport_group.h"

namespace muster::trainer {
namespace {

void on_groups(const DeviceMemory& memory, const std::function<void(ProcessGroup&)>& body) {
  LocalWorld world(kDeviceRanks, std::chrono::milliseconds(20'000));
  on_ranks(
      kDeviceRanks,
      [&](int rank, int) {
        return staged_group(make_world_group(world.join(rank), "world", nullptr), memory);
      },
      body);
}

TEST(StagedGroup, MatchesHostGroups) {
  const LockedMemory device;
  std::vector<std::vector<float>> expected, staged;
  on_groups(host_memory(),
            [&](ProcessGroup& group) { run_collectives(group, host_memory(), expected); });
  on_groups(device, [&](ProcessGroup& group) { run_collectives(group, device, staged); });
  EXPECT_EQ(expected.size(), 30U);
  EXPECT_EQ(staged, expected);
}

// Ranks also exchange data that is not in tensors.
TEST(StagedGroup, DoesNotMoveHostBuffers) {
  const LockedMemory device;
  on_groups(device, [&](ProcessGroup& group) {
    std::vector<float> sum = input_of(group.rank(), 10);
    EXPECT_TRUE(succeeds(group.all_reduce(sum, "sum")));
    EXPECT_EQ(sum, sum_of(kDeviceRanks, 10));
    EXPECT_EQ(group.size(), kDeviceRanks);
    EXPECT_EQ(group.name(), "world");
    EXPECT_GT(group.sent(CollectiveKind::kAllReduce).total, 0U);
  });
}

// Data that was not received is not stored.
TEST(StagedGroup, AnErrorIsTheGroups) {
  const LockedMemory device;
  on_groups(device, [&](ProcessGroup& group) {
    if (group.rank() == 0) return group.abort();
    Vector data(device, std::vector<float>{1, 2, 3});
    EXPECT_EQ(group.all_reduce(data.all(), "never").code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(data.values(), (std::vector<float>{1, 2, 3}));
  });
}

}  // namespace
}  // namespace muster::trainer
