// The plugin in a host that loads and calls it as NCCL does (fake_nccl.h): by dlopen, by the newest
// table that both support, communicators first, then events from the enqueueing thread and from the
// proxy thread.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/progress/progress_page.h"
#include "tests/unit/progress/fake_nccl.h"
#include "tests/unit/progress/profiled_rank.h"

namespace muster {
namespace {

using namespace fake_nccl;

class NcclProfiler : public ProfiledRank {
 protected:
  // Two communicators; one has a collective in progress and one enqueued.
  template <class T>
  void records_collectives(uint32_t members) {
    in_a_rank([&] {
      const T& table = load<T>();
      Communicator<T> world(table, {0x1111222233334444, "world", 8});
      Communicator<T> pair(table, {0x5555666677778888, nullptr, 2});
      EXPECT_EQ(event_mask, static_cast<int>(kColl | kProxyCtrl | kKernelCh));
      void* first = world.enqueue(kTwoChannels);
      ASSERT_NE(first, nullptr) << "NCCL was not given what it needs before it reports collectives";
      EXPECT_EQ(page().groups[0].started, 0U);
      void* low = world.start_kernel(first, 0);
      void* high = world.start_kernel(first, 1);
      EXPECT_EQ(page().groups[0].started, 1U);
      world.stop_kernel(low);
      EXPECT_EQ(page().groups[0].completed, 0U) << "a channel is still at work";
      world.stop_kernel(high);
      EXPECT_EQ(page().groups[0].completed, 1U);
      void* second = world.enqueue({"ReduceScatter", 10, "ncclFloat64", 1});
      world.start_kernel(second, 0);
      world.enqueue({"Reduce", 3, "ncclFloat32", 1});
      EXPECT_EQ(world.other_event(kP2p, nullptr), nullptr);
      EXPECT_EQ(world.other_event(kProxyOp, second), nullptr);
      pair.run(pair.enqueue({"AllGather", 4, "ncclInt8", 1}), 1);
      pair.finalize();
    });
    const ProgressPage seen = page();
    ASSERT_EQ(seen.group_count, 2U);
    EXPECT_EQ(seen.rank, 1);
    EXPECT_EQ(seen.phase, Phase::kInit) << "collectives alone are no phase";
    const GroupProgress& world = seen.groups[0];
    EXPECT_STREQ(world.name.data(), "nccl world");
    EXPECT_EQ(world.members, members);
    EXPECT_EQ(world.id, 0x22226666U);
    EXPECT_EQ(world.enqueued, 3U);
    EXPECT_EQ(world.started, 2U);
    EXPECT_EQ(world.completed, 1U);
    EXPECT_EQ(world.bytes, 12U);
    const GroupProgress& pair = seen.groups[1];
    EXPECT_STREQ(pair.name.data(), "nccl 5555666677778888");
    EXPECT_EQ(pair.enqueued, 1U);
    EXPECT_EQ(pair.completed, 1U);
    EXPECT_EQ(pair.kind, CollectiveKind::kAllGather);
    EXPECT_EQ(seen.ring[0].kind, CollectiveKind::kAllReduce);
    EXPECT_EQ(seen.ring[0].bytes, 2U << 20);
    EXPECT_STREQ(seen.ring[0].name.data(), "AllReduce");
    EXPECT_EQ(seen.ring[1].kind, CollectiveKind::kReduceScatter);
    EXPECT_EQ(seen.ring[1].bytes, 80U);
    EXPECT_EQ(seen.ring[2].kind, CollectiveKind::kNone);
    EXPECT_STREQ(seen.ring[2].name.data(), "Reduce");
  }
};

// Version 3 does not report the number of ranks, and names communicators with each collective.
TEST_F(NcclProfiler, RecordsCollectivesOfVersion3) { records_collectives<V3>(0); }
TEST_F(NcclProfiler, RecordsCollectivesOfVersion4) { records_collectives<V4>(8); }
TEST_F(NcclProfiler, RecordsCollectivesOfVersion5) { records_collectives<V5>(8); }

TEST_F(NcclProfiler, WithoutMusterNcclNeedNotCall) {
  in_a_rank(
      [&] {
        event_mask = -1;
        Communicator<V5> world(load<V5>(), {1, "world", 8});
        EXPECT_EQ(event_mask, 0);
        EXPECT_EQ(world.enqueue(kOneChannel), nullptr);
        event_mask = -1;
        Communicator<V3> old(load<V3>(), {1, "world", 8});
        EXPECT_EQ(event_mask, 0);
        EXPECT_EQ(old.enqueue(kOneChannel), nullptr);
      },
      /*with_page=*/false);
}

// As in NCCL: one thread enqueues, and another one reports the kernels' ends, with growing delay.
TEST_F(NcclProfiler, KernelsEndOnAnotherThread) {
  constexpr uint64_t kCalls = 20'000;
  in_a_rank([&] {
    Communicator<V4> world(load<V4>(), {7, "world", 8});
    std::vector<void*> handles(kCalls);
    std::atomic<size_t> enqueued{0};
    std::thread kernels([&] {
      for (size_t i = 0; i < kCalls; ++i) {
        while (enqueued.load() <= i) std::this_thread::yield();
        void* channel = world.start_kernel(handles[i], 0);
        world.stop_kernel(channel);
      }
    });
    for (size_t i = 0; i < kCalls; ++i) {
      handles[i] = world.enqueue(kOneChannel);
      enqueued = i + 1;
    }
    kernels.join();
    // The last one is known, whatever happened to those that fell behind.
    const GroupProgress group = page().groups[0];
    EXPECT_EQ(group.enqueued, kCalls);
    EXPECT_EQ(group.completed, kCalls);
  });
}

TEST_F(NcclProfiler, StaleAndForeignHandlesAreIgnored) {
  in_a_rank([&] {
    Communicator<V5> world(load<V5>(), {7, "world", 8});
    void* oldest = world.enqueue(kOneChannel);
    void* kernel = world.start_kernel(oldest, 0);
    for (int i = 0; i < 5'000; ++i) world.enqueue(kOneChannel);
    world.stop_kernel(kernel);
    EXPECT_EQ(page().groups[0].completed, 0U) << "the place of one collective is another one's now";
    EXPECT_EQ(world.start_kernel(oldest, 1), nullptr);
    EXPECT_EQ(world.start_kernel(kernel, 1), nullptr) << "a kernel has no children";
    for (const uintptr_t value : {uintptr_t{1}, uintptr_t{62}, ~uintptr_t{0}, ~uintptr_t{1}})
      world.stop_kernel(reinterpret_cast<void*>(value));
    EXPECT_EQ(page().groups[0].completed, 0U);
  });
}

// Version 3 reports an upper bound of channels. Two of eight have stopped, and others may not have
// begun yet: only a later kernel shows that the collective is done, not another collective of the
// same kernel.
TEST_F(NcclProfiler, ALaterKernelCompletesEarlierCollectives) {
  in_a_rank([&] {
    Communicator<V3> world(load<V3>(), {7, "world", 8});
    const std::vector<void*> fused =
        world.launch({{"AllReduce", 1, "ncclFloat32", 8}, kOneChannel});
    void* later = world.enqueue({"AllGather", 1, "ncclFloat32", 8});
    void* low = world.start_kernel(fused[0], 0);
    world.stop_kernel(low);
    EXPECT_EQ(page().groups[0].completed, 0U) << "channel 1 may not have begun";
    void* high = world.start_kernel(fused[0], 1);
    void* second = world.start_kernel(fused[1], 0);
    EXPECT_EQ(page().groups[0].completed, 0U) << "it is in the same kernel";
    world.stop_kernel(high);
    EXPECT_EQ(page().groups[0].completed, 0U);
    world.stop_kernel(second);
    EXPECT_EQ(page().groups[0].started, 2U);
    EXPECT_EQ(page().groups[0].completed, 0U) << "the first one is unknown";
    void* next = world.start_kernel(later, 0);
    EXPECT_EQ(page().groups[0].completed, 2U);
    EXPECT_NE(page().ring[0].completed_ns, 0);
    world.stop_kernel(next);
    EXPECT_EQ(page().groups[0].started, 3U);
    EXPECT_EQ(page().groups[0].completed, 2U);
  });
}

// Nothing may follow for long: the last collective of a communicator must not appear unfinished.
TEST_F(NcclProfiler, ASleepingProxyThreadCompletesAllCollectives) {
  in_a_rank([&] {
    const V3& table = load<V3>();
    Communicator<V3> world(table, {7, "world", 8});
    Communicator<V3> shares_its_thread(table, {8, "shares", 2});
    Communicator<V3> other(table, {9, "other", 2});
    world.run(world.enqueue({"AllReduce", 1, "ncclFloat32", 8}), 3);
    shares_its_thread.run(shares_its_thread.enqueue({"AllReduce", 1, "ncclFloat32", 8}), 2);
    world.enqueue({"AllGather", 1, "ncclFloat32", 8});
    std::thread proxy([&] {
      other.start_kernel(other.enqueue({"Broadcast", 1, "ncclInt8", 8}), 0);
    });
    proxy.join();
    EXPECT_EQ(group("nccl world").completed, 0U);
    world.proxy_sleeps();
    EXPECT_EQ(group("nccl world").completed, 1U) << "the second one has not begun";
    EXPECT_EQ(group("nccl shares").completed, 1U);
    EXPECT_EQ(group("nccl other").completed, 0U) << "another thread's";
  });
}

// NCCL runs the collectives of one kernel on parallel channels. The end of the second must not hide
// a hang in the first.
TEST_F(NcclProfiler, AnEarlyEndOfTheSecondDoesNotHideTheFirst) {
  in_a_rank([&] {
    Communicator<V5> world(load<V5>(), {7, "world", 8});
    const std::vector<void*> fused = world.launch({kTwoChannels, kTwoChannels});
    void* first = world.start_kernel(fused[0], 0);
    void* rest = world.start_kernel(fused[0], 1);
    world.run(fused[1], 2);
    EXPECT_EQ(page().groups[0].started, 2U);
    EXPECT_EQ(page().groups[0].completed, 0U);
    world.stop_kernel(first);
    EXPECT_EQ(page().groups[0].completed, 0U);
    world.stop_kernel(rest);
    EXPECT_EQ(page().groups[0].completed, 2U);
  });
}

// NCCL 2.27 does not report the number of channels of collectives that a switch computes: they are
// not done when they are enqueued.
template <class T>
class NcclProfilerOfNoNumber : public ProfiledRank {};
using Exact = ::testing::Types<V4, V5>;
TYPED_TEST_SUITE(NcclProfilerOfNoNumber, Exact, VersionName);
TYPED_TEST(NcclProfilerOfNoNumber, CompletesWithTheKernelIfChannelsAreUnknown) {
  this->in_a_rank([&] {
    Communicator<TypeParam> world(this->template load<TypeParam>(), {7, "world", 8});
    void* collnet = world.enqueue({"AllReduce", 1, "ncclFloat32", 0});
    EXPECT_EQ(this->page().groups[0].completed, 0U);
    world.run(collnet, 4);
    EXPECT_EQ(this->page().groups[0].started, 1U);
    EXPECT_EQ(this->page().groups[0].completed, 0U);
    world.proxy_sleeps();
    EXPECT_EQ(this->page().groups[0].completed, 1U);
  });
}

// Its symbols must not interpose those of the program.
TEST_F(NcclProfiler, ExportsOnlyItsTables) {
  void* library = dlopen(MUSTER_NCCL_PROFILER, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  for (const char* symbol : {"muster_progress_begin", "ncclProfiler_v1", "ncclProfiler_v2"})
    EXPECT_EQ(dlsym(library, symbol), nullptr) << symbol;
}

}  // namespace
}  // namespace muster
