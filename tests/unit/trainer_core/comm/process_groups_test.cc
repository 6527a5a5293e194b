#include "trainer_core/comm/process_groups.h"

#include <gmock/gmock.h>

#include <bit>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/comm/collectives.h"
#include "tests/unit/trainer_core/on_mesh.h"
#include "trainer_core/comm/local.h"

namespace muster::trainer {
namespace {

using std::chrono::milliseconds;
using enum MeshAxis;

Mesh mesh_of(MeshShape shape, int32_t nodes, int32_t ranks_per_node) {
  const auto mesh = Mesh::resolve(shape, nodes, ranks_per_node);
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  return *mesh;
}

// data=2 fsdp=2 tensor=2 on one node.
Mesh cube() { return mesh_of({.ici = {2, 1, 2, 1, 1, 1, 2}}, 1, 8); }

TEST(ProcessGroups, EachGroupHasTheMeshsRanks) {
  const Mesh mesh = cube();
  const std::vector<AxisSet> sets = {{kData},          {kFsdp},          {kTensor},
                                     {kData, kTensor}, {kFsdp, kTensor}, {kData, kFsdp, kTensor}};
  on_mesh(mesh, [&](ProcessGroups& groups) {
    for (const AxisSet& axes : sets) {
      ProcessGroup& group = groups.of({.axes = axes});
      EXPECT_EQ(group.name(), axes.to_string());
      std::vector<int32_t> members(static_cast<size_t>(group.size()));
      ASSERT_TRUE(group.all_gather(std::vector<int32_t>{groups.rank()}, members, "who").ok());
      EXPECT_EQ(members, mesh.group(groups.rank(), {.axes = axes}));
      EXPECT_EQ(members[static_cast<size_t>(group.rank())], groups.rank());
    }
    EXPECT_EQ(groups.world().size(), 8);
    EXPECT_EQ(groups.of({}).size(), 1);
  });
}

TEST(ProcessGroups, NcclsKernelsHaveRoomOnADeviceTogether) {
  struct Case {
    Mesh mesh;
    // the computation's, the stream's, the ring's, a message to and one from the neighbours
    int kernels;
    int blocks_h100;  // which has 132 multiprocessors
  };
  const Case cases[] = {{cube(), 2, 32},
                        {mesh_of({.ici = {1, 1, 2, 1, 2, 1, 2}}, 1, 8), 3, 32},
                        {mesh_of({.ici = {1, 2, 2, 1, 1, 1, 2}}, 1, 8), 4, 16},
                        {mesh_of({.ici = {1, 2, 2, 1, 2, 1, 1}}, 1, 8), 5, 16}};
  for (const Case& c : cases) {
    EXPECT_EQ(nccl_blocks_max(132, c.mesh), c.blocks_h100) << c.mesh.to_string();
    for (const int multiprocessors : {8, 40, 84, 108, 132, 148}) {
      const int blocks = nccl_blocks_max(multiprocessors, c.mesh);
      const int most = blocks == 0 ? 64 : blocks;
      // Sends and receives round up.
      EXPECT_TRUE(std::has_single_bit(static_cast<unsigned>(most))) << most;
      EXPECT_LE(most * c.kernels, multiprocessors) << c.mesh.to_string();
    }
  }
  EXPECT_EQ(nccl_blocks_max(148, cube()), 0);
  EXPECT_EQ(nccl_blocks_max(1, cube()), 1);
}

TEST(ProcessGroups, OneListOfMembersIsOneGroup) {
  const LocalWorld world(8, milliseconds(20'000));
  ProcessGroups groups(world.join(5), cube(), nullptr);
  ProcessGroup& fsdp = groups.of({.axes = {kFsdp}});
  EXPECT_EQ(&fsdp, &groups.of({.axes = {kFsdp, kSequence, kContext}}));  // axes of one rank each
  EXPECT_EQ(&groups.of({.axes = {kFsdp, kTensor}, .tensor_run = 1}), &fsdp);
  EXPECT_EQ(&groups.of({.axes = {kFsdp, kTensor}, .tensor_run = 2}),
            &groups.of({.axes = {kFsdp, kTensor}}));
  EXPECT_NE(&groups.of({.axes = {kFsdp}}, 1), &fsdp);
  EXPECT_EQ(groups.of({.axes = {kFsdp}}, 1).name(), "fsdp#1");
  EXPECT_EQ(groups.world().name(), "data+fsdp+tensor");
}

TEST(ProcessGroups, TheEndsOfThePipeline) {
  on_mesh(mesh_of({.ici = {1, 4, 2, 1, 1, 1, 1}}, 1, 8), [&](ProcessGroups& groups) {
    const GroupAxes ends{.axes = {kPipeline}, .pipeline_ends = true};
    if (groups.rank() / 2 == 1 || groups.rank() / 2 == 2) return;
    EXPECT_EQ(groups.of(ends).name(), "pipeline/ends");
    EXPECT_EQ(groups.of(ends).size(), 2);
    EXPECT_EQ(groups.of({.axes = {kPipeline}}).size(), 4);
  });
}

TEST(ProcessGroups, NeighboursOfTheTensorAxis) {
  const Mesh mesh = mesh_of({.ici = {1, 1, 1, 1, 1, 1, 8}}, 1, 8);
  on_mesh(mesh, [&](ProcessGroups& groups) {
    ProcessGroup& group = groups.of({.axes = {kTensor}, .tensor_run = 2});
    EXPECT_EQ(group.name(), "tensor/2");
    std::vector<int32_t> members(2);
    ASSERT_TRUE(group.all_gather(std::vector<int32_t>{groups.rank()}, members, "who").ok());
    EXPECT_EQ(members, (std::vector<int32_t>{groups.rank() / 2 * 2, groups.rank() / 2 * 2 + 1}));
  });
}

// Two threads of each rank run long series through groups that cross each other, and one group on
// two channels, without a common order between the threads.
TEST(ProcessGroups, SeveralThreadsUseSeveralGroupsAtOnce) {
  constexpr int kRounds = 300;
  on_mesh(cube(), [&](ProcessGroups& groups) {
    const auto series = [&](const AxisSet& axes, int channel, size_t count) {
      ProcessGroup& group = groups.of({.axes = axes}, channel);
      const std::vector<float> expected = sum_of(group.size(), count);
      for (int i = 0; i < kRounds; ++i) {
        std::vector<float> data = input_of(group.rank(), count);
        ASSERT_TRUE(group.all_reduce(data, "series").ok());
        ASSERT_EQ(data, expected);
        if (i % 50 == 0) check_moves(group, 10);
      }
    };
    std::thread second([&] {
      series({kFsdp, kTensor}, 1, 33);
      series({kData, kFsdp}, 0, 1000);
    });
    series({kFsdp, kTensor}, 0, 1000);
    series({kData, kTensor}, 0, 5);
    second.join();
  });
}

// Two nodes of four ranks: all ranks get bit-identical results, and a quarter of the bytes crosses
// nodes.
TEST(ProcessGroups, AGroupOverNodesReducesInsideThemFirst) {
  const Mesh mesh = mesh_of({.ici = {1, 1, 4, 1, 1, 1, 1}, .dcn = {2, 1, 1, 1, 1, 1, 1}}, 2, 4);
  constexpr size_t kCount = 1000;  // 4 slices of 250, each of 2 x 125
  on_mesh(mesh, [&](ProcessGroups& groups) {
    ProcessGroup& all = groups.world();
    std::vector<float> data = input_of(all.rank(), kCount);
    ASSERT_TRUE(all.all_reduce(data, "gradients").ok());
    std::vector<float> expected(kCount);
    const auto on_node = [](int n, size_t i) {
      return ((element(4 * n, i) + element(4 * n + 1, i)) + element(4 * n + 2, i)) +
             element(4 * n + 3, i);
    };
    const auto on_nodes = [&](size_t i) { return on_node(0, i) + on_node(1, i); };
    for (size_t i = 0; i < kCount; ++i) expected[i] = on_nodes(i);
    EXPECT_EQ(data, expected);
    // 2 (m-1)/n S = 2 x 1/8 x 4000 across; 2 (n-1)/n S in all.
    EXPECT_EQ(all.sent(CollectiveKind::kAllReduce), (SentBytes{7000, 1000}));

    std::vector<Bf16> half(kCount, Bf16::round(1.0F + 1.0F / 128 * static_cast<float>(all.rank())));
    ASSERT_TRUE(all.all_reduce(half, "bf16").ok());
    for (const Bf16 x : half) ASSERT_EQ(x.value(), Bf16::round(8.0F + 28.0F / 128).value());
    // Across: 125 partial sums of 4 bytes, 125 results of 2.
    EXPECT_EQ(all.sent(CollectiveKind::kAllReduce), (SentBytes{7000 + 3750, 1000 + 750}));

    // Each way once: (m-1) S of (n-1) S, and (m-1)/n S of (n-1)/n S, where S is 4000 and 8 x 4000.
    std::vector<float> gathered(8 * kCount);
    ASSERT_TRUE(all.all_gather(input_of(all.rank(), kCount), gathered, "gather").ok());
    for (size_t i = 0; i < gathered.size(); ++i)
      ASSERT_EQ(gathered[i], element(static_cast<int>(i / kCount), i % kCount));
    EXPECT_EQ(all.sent(CollectiveKind::kAllGather), (SentBytes{28'000, 4000}));
    std::vector<float> scattered(kCount);
    ASSERT_TRUE(all.reduce_scatter(input_of(all.rank(), 8 * kCount), scattered, "scatter").ok());
    for (size_t i = 0; i < kCount; ++i)
      ASSERT_EQ(scattered[i], on_nodes(static_cast<size_t>(all.rank()) * kCount + i));
    EXPECT_EQ(all.sent(CollectiveKind::kReduceScatter), (SentBytes{28'000, 4000}));
    std::vector<Bf16> halves(8 * kCount, Bf16::round(1)), eight(kCount);
    ASSERT_TRUE(all.reduce_scatter(halves, eight, "bf16").ok());
    for (const Bf16 x : eight) ASSERT_EQ(x.value(), 8);
    // Inside: 3 x 2 slices of 2 bytes a number; across: one of 4.
    EXPECT_EQ(all.sent(CollectiveKind::kReduceScatter),
              (SentBytes{28'000 + 12'000 + 4000, 4000 + 4000}));

    // One rank of each node: nothing to do inside.
    ProcessGroup& rank_models = groups.of({.axes = {kData}});
    std::vector<float> small = input_of(rank_models.rank(), kCount);
    ASSERT_TRUE(rank_models.all_reduce(small, "replicas").ok());
    EXPECT_EQ(small, sum_of(2, kCount));
    EXPECT_EQ(rank_models.sent(CollectiveKind::kAllReduce), (SentBytes{4000, 4000}));
    EXPECT_EQ(groups.sent(), (SentBytes{14'750 + 28'000 + 44'000, 5'750 + 4000 + 8000}));
  });
}

TEST(ProcessGroups, BusyTimeIsPerChannel) {
  on_mesh(mesh_of({.ici = {1, 1, 2, 1, 1, 1, 1}}, 1, 2), [&](ProcessGroups& groups) {
    groups.of({.axes = {kFsdp}}, kOverlapChannel);
    EXPECT_EQ(groups.busy(kComputeChannel) + groups.busy(kOverlapChannel), Duration::zero());
    const Instant began = monotonic_now();
    ASSERT_TRUE(groups.world().barrier("step").ok());
    const Duration blocked = groups.busy(kComputeChannel);
    EXPECT_GT(blocked, Duration::zero());
    EXPECT_LE(blocked, monotonic_now() - began);
    EXPECT_EQ(groups.busy(kOverlapChannel), Duration::zero());
    ASSERT_TRUE(groups.of({.axes = {kFsdp}}, kOverlapChannel).barrier("beside it").ok());
    EXPECT_GT(groups.busy(kOverlapChannel), Duration::zero());
    EXPECT_EQ(groups.busy(kComputeChannel), blocked);
  });
}

TEST(ProcessGroups, CommunicatingGroupsHaveSlotsOnThePage) {
  const Mesh mesh = cube();
  const LocalWorld world(8, milliseconds(20'000));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 8; ++rank) {
    threads.emplace_back([&, rank] {
      const auto page = ProgressWriter::anonymous({.rank = rank, .world_size = 8});
      ProcessGroups groups(world.join(rank), mesh, page.get());
      groups.of({.axes = {kTensor}});  // made, not used
      ASSERT_TRUE(groups.of({}).barrier("alone").ok());
      // More groups than the page has entries.
      for (int channel = 0; channel < kProgressGroupsMax + 4; ++channel)
        ASSERT_TRUE(groups.of({.axes = {kFsdp}}, channel).barrier("used").ok());
      EXPECT_EQ(page->page().group_count, static_cast<uint32_t>(kProgressGroupsMax));
      EXPECT_STREQ(page->page().groups[0].name.data(), "fsdp");
      EXPECT_STREQ(page->page().groups[15].name.data(), "fsdp#15");
      EXPECT_EQ(page->page().groups[15].completed, 1U);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ProcessGroups, ALostRankEndsTheGroupsOfEveryThread) {
  on_mesh(cube(), [&](ProcessGroups& groups) {
    if (groups.rank() == 6) return;
    // Rank 6 is in each rank's world, and only in some ranks' other groups: those learn of it from
    // a rank that does.
    std::thread second([&] {
      ProcessGroup& pair = groups.of({.axes = {kTensor}});
      absl::Status status;
      while (status.ok()) status = pair.barrier("pair");
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    });
    const absl::Status status = groups.world().barrier("all");
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("rank 6 is gone"));
    second.join();
  });
}

// On a mesh of one axis all groups have the same members: only channels separate the threads'
// messages.
TEST(ProcessGroups, ChannelsAreIndependent) {
  const std::set<int> channels = {kComputeChannel,    kOverlapChannel,   kRingChannel,
                                  kStageChannel,      kStageChannel + 1, kStageChannel + 2,
                                  kCheckpointChannel, kLeaveChannel};
  EXPECT_EQ(channels.size(), 8U);
}

}  // namespace
}  // namespace muster::trainer
