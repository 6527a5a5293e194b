// Communicators that come and go, exceed the slots, or have several ranks in one process, in every
// version of NCCL's interface.
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "common/progress/progress_page.h"
#include "progress/muster_progress.h"
#include "tests/unit/progress/fake_nccl.h"
#include "tests/unit/progress/profiled_rank.h"

namespace muster {
namespace {

using namespace fake_nccl;

constexpr uint64_t kPlaces = 32;  // groups of a page

template <class T>
class NcclCommunicators : public ProfiledRank {
 protected:
  const T& plugin() { return load<T>(); }
  static void run(Communicator<T>& communicator) {
    communicator.run(communicator.enqueue(kOneChannel), 1);
  }
  uint64_t completed_of_all() const {
    uint64_t sum = 0;
    for (const GroupProgress& group : page().groups) sum += group.completed;
    return sum;
  }
};
using Versions = ::testing::Types<V3, V4, V5>;
TYPED_TEST_SUITE(NcclCommunicators, Versions, VersionName);

// One mask serves all: a communicator without a slot must not disable the others.
TYPED_TEST(NcclCommunicators, OneBeyondTheSlotsDoesNotDisturbTheOthers) {
  this->in_a_rank([&] {
    const TypeParam& table = this->plugin();
    std::vector<Communicator<TypeParam>> all;
    for (uint64_t i = 0; i < kPlaces + 8; ++i)
      all.emplace_back(table, GroupIdentity{i + 100, "one", 2});
    EXPECT_EQ(event_mask, static_cast<int>(kColl | kProxyCtrl | kKernelCh));
    EXPECT_EQ(all[kPlaces].context(), nullptr);
    EXPECT_EQ(all[kPlaces].enqueue(kOneChannel), nullptr);
    for (Communicator<TypeParam>& one : all) this->run(one);
    EXPECT_EQ(this->completed_of_all(), kPlaces);
    for (Communicator<TypeParam>& one : all) one.finalize();
  });
}

// A program that creates and destroys communicators stays visible, and its communicators are not
// confused.
TYPED_TEST(NcclCommunicators, SlotsAreReused) {
  this->in_a_rank([&] {
    const TypeParam& table = this->plugin();
    std::vector<Communicator<TypeParam>> all;
    for (uint64_t i = 0; i < kPlaces; ++i) {
      all.emplace_back(table, GroupIdentity{i + 100, "old", 2});
      this->run(all.back());
    }
    void* late = all[3].start_kernel(all[3].enqueue(kOneChannel), 0);
    all[3].finalize();
    Communicator<TypeParam> next(table, {7, "next", 2});
    void* first = next.enqueue(kTwoChannels);
    next.start_kernel(first, 0);
    EXPECT_EQ(this->page().group_count, kPlaces);
    EXPECT_EQ(this->group("nccl next").id, 7U);
    all[3].stop_kernel(late);
    EXPECT_EQ(all[3].enqueue(kOneChannel), nullptr);
    EXPECT_EQ(this->group("nccl next").enqueued, 1U) << "numbers start again from 0";
    EXPECT_EQ(this->group("nccl next").started, 1U);
    EXPECT_EQ(this->group("nccl next").completed, 0U);
    const ProgressPage seen = this->page();
    const auto records = std::count_if(
        seen.ring.begin(), seen.ring.end(),
        [](const CollectiveRecord& record) { return record.seq != 0 && record.group == 3; });
    EXPECT_EQ(records, 1) << "the ring's of the other one are not this one's";
  });
}

// NCCL closes the library with the last communicator.
TYPED_TEST(NcclCommunicators, NewOnesAreRecordedAfterTheLastIsClosed) {
  this->in_a_rank([&] {
    for (uint64_t round = 0; round < 3; ++round) {
      Communicator<TypeParam> world(this->plugin(), {7, "world", 8});
      this->run(world);
      EXPECT_EQ(this->page().group_count, 1U);
      EXPECT_EQ(this->group("nccl world").completed, 1U);
      world.finalize();
      EXPECT_EQ(dlclose(this->library_), 0);
    }
  });
}

// Two GPUs in one process are two ranks of one communicator, each with all of its collectives.
TYPED_TEST(NcclCommunicators, RanksOfOneProcessAreSeparate) {
  this->in_a_rank([&] {
    const TypeParam& table = this->plugin();
    std::vector<Communicator<TypeParam>> ranks;
    for (int rank = 4; rank < 6; ++rank)
      ranks.emplace_back(table, GroupIdentity{7, "world", 8, rank});
    std::vector<void*> handles;
    for (auto& rank : ranks) handles.push_back(rank.enqueue(kOneChannel));
    ranks[1].run(handles[1], 1);
    const GroupProgress one = this->group("nccl world");
    const GroupProgress other = this->group("nccl world/1");
    EXPECT_EQ(one.enqueued, 1U);
    EXPECT_EQ(other.enqueued, 1U);
    EXPECT_EQ(one.completed, 0U);
    EXPECT_EQ(other.completed, 1U);
    EXPECT_EQ(one.id, other.id);
    EXPECT_EQ(one.members, 0U) << "8 ranks are fewer processes, of an unknown number";
    EXPECT_EQ(other.members, 0U);
  });
}

// The program first registers its own groups through muster_progress.h.
TYPED_TEST(NcclCommunicators, GroupsOfTheProgramCoexist) {
  this->in_a_rank([&] {
    muster_progress own;
    ASSERT_EQ(muster_progress_begin(&own), 0);
    ASSERT_EQ(muster_progress_group(&own, "data", 8, 0), 0);
    Communicator<TypeParam> world(this->plugin(), {7, "world", 8});
    this->run(world);
    EXPECT_EQ(this->group("data").enqueued, 0U);
    EXPECT_EQ(this->group("nccl world").completed, 1U);
  });
}

}  // namespace
}  // namespace muster
