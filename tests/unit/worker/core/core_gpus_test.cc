// Assignment of GPUs to launches.
#include <gmock/gmock.h>

#include "tests/unit/worker/core/core_fixture.h"

namespace muster::worker {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class CoreGpusTest : public CoreTest {
 protected:
  CoreGpusTest() {
    CoreOptions with = options();
    for (int32_t i = 0; i < 4; ++i)
      with.gpus.push_back({.index = i, .uuid = "GPU-" + std::to_string(i), .name = "fake"});
    core = Core(with, now);
  }

  static StartRanks on_gpus(uint64_t job, uint32_t attempt, int32_t ranks, int32_t each = 1) {
    StartRanks event = start(job, attempt, ranks);
    event.launch.spec.gpus_per_rank = each;
    return event;
  }

  // Returns the GPUs of the launches whose ranks are spawned by `actions`.
  std::vector<std::vector<int32_t>> spawned(const ActionList& actions) {
    std::vector<std::vector<int32_t>> gpus;
    for (const SpawnRank& spawn : actions_of<SpawnRank>(actions))
      gpus.push_back(spawn.launch->gpus_of(spawn.local_rank));
    return gpus;
  }

  ActionList end(const RankKey& rank) {
    RankReaped event;
    event.key = rank;
    return step(event);
  }
};

TEST_F(CoreGpusTest, AreInEachRegistration) {
  const auto registers = actions_of<SendRegister>(connect());
  ASSERT_THAT(registers, SizeIs(1));
  EXPECT_THAT(registers[0].gpus, SizeIs(4));
  EXPECT_EQ(registers[0].gpus[3].uuid, "GPU-3");
}

TEST_F(CoreGpusTest, TwoJobsShareNoGpu) {
  connect();
  EXPECT_THAT(spawned(start_up(on_gpus(1, 1, 2))), IsEmpty());  // start_up's own actions
  EXPECT_EQ(core.gpus_used(), 2);
  EXPECT_THAT(spawned(step(on_gpus(2, 1, 1))), ElementsAre(ElementsAre(2)));
  // Launches without GPUs run beside them.
  EXPECT_THAT(spawned(step(start(3, 1, 1))), ElementsAre(IsEmpty()));
  EXPECT_EQ(core.gpus_used(), 3);
}

TEST_F(CoreGpusTest, ASlotsShareOfFourGpusIsOne) {
  connect();
  EXPECT_THAT(spawned(step(on_gpus(1, 1, 2, kGpusOfSlot))),
              ElementsAre(ElementsAre(0), ElementsAre(1)));
}

TEST_F(CoreGpusTest, TheFirstGpusOfAllRanksComeFirst) {
  connect();
  const auto spawns = actions_of<SpawnRank>(step(on_gpus(1, 1, 2, 2)));
  ASSERT_THAT(spawns, SizeIs(2));
  EXPECT_THAT(spawns[0].launch->gpus, ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(spawns[0].launch->gpus_of(0), ElementsAre(0, 1));
  EXPECT_THAT(spawns[0].launch->gpus_of(1), ElementsAre(2, 3));
  EXPECT_THAT(spawns[0].launch->gpus_of(-1), IsEmpty());
}

TEST_F(CoreGpusTest, TooFewAreARefusalThatCounts) {
  connect();
  start_up(on_gpus(1, 1, 3));
  const auto reports = actions_of<SendRankExited>(step(on_gpus(2, 1, 1, 2)));
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_EQ(reports[0].detail,
            "could not be started: the launch needs 2 GPUs and worker node0 has 1 of 4 free and "
            "good");
  EXPECT_EQ(reports[0].cause, ExitCause::kUnknown);
}

TEST_F(CoreGpusTest, NothingStartsOnAFailedGpu) {
  connect();
  step(GpusChanged{{"", "GPU 1 is lost (Xid 79)", "", ""}});
  EXPECT_THAT(spawned(step(on_gpus(1, 1, 2))), ElementsAre(ElementsAre(0), ElementsAre(2)));
  const auto reports = actions_of<SendRankExited>(step(on_gpus(2, 1, 2)));
  ASSERT_THAT(reports, SizeIs(2));
  EXPECT_THAT(reports[0].detail,
              AllOf(HasSubstr("has 1 of 4 free and good"), HasSubstr("; GPU 1 is lost (Xid 79)")));
  EXPECT_EQ(reports[0].cause, ExitCause::kGpuFault);
}

TEST_F(CoreGpusTest, ANewAttemptWaitsForThoseOfTheLastOne) {
  connect();
  start_up(on_gpus(1, 1, 4));
  EXPECT_THAT(spawned(step(on_gpus(1, 2, 4))), IsEmpty());
  for (int32_t rank = 0; rank < 3; ++rank) EXPECT_THAT(spawned(end(key(1, 1, rank))), IsEmpty());
  EXPECT_THAT(spawned(end(key(1, 1, 3))), SizeIs(4));
}

TEST_F(CoreGpusTest, AnotherJobWaitsForThoseThatASupersededAttemptStillHas) {
  connect();
  start_up(on_gpus(1, 1, 4));
  EXPECT_THAT(spawned(step(on_gpus(1, 2, 2))), IsEmpty());  // takes 0 and 1 next
  EXPECT_THAT(spawned(step(on_gpus(2, 1, 2))), IsEmpty());  // takes 2 and 3
  EXPECT_THAT(spawned(end(key(1, 1, 0))), IsEmpty());
  EXPECT_THAT(spawned(end(key(1, 1, 2))), IsEmpty());
  EXPECT_THAT(spawned(end(key(1, 1, 3))), ElementsAre(ElementsAre(2), ElementsAre(3)));
  EXPECT_THAT(spawned(end(key(1, 1, 1))), ElementsAre(ElementsAre(0), ElementsAre(1)));
}

}  // namespace
}  // namespace muster::worker
