#include "common/job/rank_evidence.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include <gtest/gtest.h>

namespace muster {
namespace {

using std::chrono::milliseconds;

class RankEvidenceTest : public ::testing::Test {
 protected:
  Instant at(int ms) const { return begin + milliseconds(ms); }
  RankEvidence evidence(int ms) const { return evidence_from_page(writer->page(), at(ms)); }

  const Instant begin = monotonic_now();
  const std::unique_ptr<ProgressWriter> writer =
      ProgressWriter::anonymous({.job = 1, .attempt = 2, .rank = 5});
};

int32_t lane_of(const char* name) {
  GroupEvidence group;
  group.name = name;
  return group.channel();
}

TEST(GroupEvidence, HasTheChannelOfTheTrainersNames) {
  EXPECT_EQ(lane_of("fsdp+context#1"), 1);
  EXPECT_EQ(lane_of("pipeline#3 nccl"), 3);
  EXPECT_EQ(lane_of("data#12"), 12);
  EXPECT_EQ(lane_of("data+pipeline+fsdp+sequence+context+expert+tensor#8"), 8);
  EXPECT_EQ(lane_of("data+pipeline+fsdp+sequence+context+expert+tensor#8 ncc"), 8) << "cut";
  EXPECT_EQ(lane_of("none#6"), 6);
  EXPECT_EQ(lane_of("tensor/4#1"), 1);
  EXPECT_EQ(lane_of("pipeline/ends#3"), 3);
  EXPECT_EQ(lane_of("pipeline+tensor/2/ends#3 nccl"), 3);
  for (const char* none : {"", "tensor", "tensor nccl", "pipeline/ends", "everyone"})
    EXPECT_EQ(lane_of(none), 0) << none;
}

// Channels from 6 on count as background: a foreign group with one would hide hangs.
TEST(GroupEvidence, ForeignNamesHaveNoChannel) {
  for (const char* name : {"x#7",
                           "#7",
                           "my group#7",
                           "default_pg#7",
                           "Data#7",
                           "database#7",
                           "fsdp+#7",
                           "+fsdp#7",
                           "fsdp+x#7",
                           "context+fsdp#7",
                           "fsdp+fsdp#7",
                           "fsdp##7",
                           "fsdp#x#7",
                           "fsdp#",
                           "fsdp#x",
                           "fsdp#7x",
                           "fsdp#7 x",
                           "fsdp#0",
                           "fsdp#-4",
                           "fsdp#99999999999",
                           "fsdp/#7",
                           "fsdp/x#7",
                           "pipeline/ends/2#3",
                           "0x55d2#7"})
    EXPECT_EQ(lane_of(name), 0) << name;
}

TEST_F(RankEvidenceTest, AgesAndFigures) {
  writer->set_phase(Phase::kStep, at(100));
  writer->complete_step(
      {.step = 7, .seconds = 0.5, .data_wait_seconds = 0.1, .collective_wait_seconds = 0.2},
      at(600));
  const RankEvidence found = evidence(1000);
  EXPECT_EQ(found.rank, 5);
  EXPECT_GT(found.pid, 0);
  EXPECT_EQ(found.phase, Phase::kStep);
  EXPECT_EQ(found.phase_age, milliseconds(900));
  EXPECT_EQ(found.progress_age, milliseconds(400));
  EXPECT_EQ(found.step, 7);
  EXPECT_EQ(found.step_seconds, 0.5);
  EXPECT_EQ(found.data_wait_seconds, 0.1);
  EXPECT_EQ(found.collective_wait_seconds, 0.2);
  EXPECT_TRUE(found.groups.empty());
  EXPECT_EQ(evidence(0).progress_age, Duration{}) << "the page was written after `now`";
}

TEST_F(RankEvidenceTest, TheOutstandingCollectiveIsNamed) {
  const int fsdp = writer->add_group("fsdp", 8, 3);
  const int tensor = writer->add_group("tensor\x1b[1m", 2, 4);
  for (int i = 0; i < 3; ++i) {
    const uint64_t seq =
        writer->begin_collective(tensor, CollectiveKind::kAllReduce, "mlp", 64, 1, at(i));
    writer->complete_collective(tensor, seq, at(i));
  }
  writer->complete_collective(
      fsdp, writer->begin_collective(fsdp, CollectiveKind::kAllGather, "layer 3", 10, 1, at(10)),
      at(20));
  writer->begin_collective(fsdp, CollectiveKind::kReduceScatter, "layer 4\n", 20, 1, at(30));

  const RankEvidence found = evidence(100);
  ASSERT_EQ(found.groups.size(), 2);
  const GroupEvidence& waits = found.groups[0];
  EXPECT_TRUE(waits.waits());
  EXPECT_EQ(waits.name, "fsdp");
  EXPECT_EQ(waits.members, 8);
  EXPECT_EQ(waits.id, 3);
  EXPECT_EQ(waits.enqueued, 2);
  EXPECT_EQ(waits.completed, 1);
  EXPECT_EQ(waits.kind, CollectiveKind::kReduceScatter);
  EXPECT_EQ(waits.bytes, 20);
  EXPECT_EQ(waits.collective, "layer 4\\x0a");
  EXPECT_EQ(waits.age, milliseconds(70));
  const GroupEvidence& idle = found.groups[1];
  EXPECT_FALSE(idle.waits());
  EXPECT_EQ(idle.name, "tensor\\x1b[1m");
  EXPECT_EQ(idle.collective, "mlp");
  EXPECT_EQ(idle.age, milliseconds(98)) << "the age of the newest collective";
}

// A rank that enqueues ahead of its device waits in its first outstanding collective.
TEST_F(RankEvidenceTest, NamesTheFirstOfSeveralOutstandingCollectives) {
  const int tensor = writer->add_group("tensor", 2, 0);
  const auto call = [&](CollectiveKind kind, const char* name, int64_t ms) {
    return writer->enqueue_collective(tensor, kind, name, 8, 1, at(ms));
  };
  const uint64_t first = call(CollectiveKind::kAllGather, "layer 0", 0);
  const uint64_t second = call(CollectiveKind::kReduceScatter, "layer 1", 10);
  call(CollectiveKind::kAllReduce, "layer 2", 20);
  const auto shown = [&] { return evidence(100).groups[0]; };
  EXPECT_EQ(shown().collective, "layer 0");
  EXPECT_EQ(shown().enqueued, 3U);
  EXPECT_EQ(shown().started, 0U);
  EXPECT_FALSE(shown().is_inside());
  writer->start_collective(tensor, first);
  EXPECT_TRUE(shown().is_inside());
  writer->complete_collective(tensor, first, at(30));
  writer->start_collective(tensor, second);
  EXPECT_EQ(shown().number(), 2U);
  EXPECT_EQ(shown().collective, "layer 1");
  EXPECT_EQ(shown().kind, CollectiveKind::kReduceScatter);
  EXPECT_EQ(shown().age, milliseconds(90));
  writer->complete_collective(tensor, second, at(40));
  EXPECT_EQ(shown().number(), shown().enqueued);
  EXPECT_EQ(shown().collective, "layer 2");
}

TEST_F(RankEvidenceTest, TheRingForgets) {
  const int slow = writer->add_group("data", 2, 0);
  const int busy = writer->add_group("tensor", 2, 0);
  writer->begin_collective(slow, CollectiveKind::kAllReduce, "loss", 4, 1, at(0));
  for (int i = 0; i < kProgressRingLength; ++i)
    writer->begin_collective(busy, CollectiveKind::kAllGather, "x", 8, 1, at(i));
  const RankEvidence found = evidence(100);
  EXPECT_TRUE(found.groups[0].waits());
  EXPECT_EQ(found.groups[0].kind, CollectiveKind::kAllReduce) << "the group still has the kind";
  EXPECT_EQ(found.groups[0].collective, "");
  EXPECT_EQ(found.groups[0].age, Duration{});
}

// A page of arbitrary bytes.
TEST(RankEvidenceOfGarbageTest, IsBoundedAndPrintable) {
  ProgressPage page;
  std::memset(static_cast<void*>(&page), 0xff, sizeof(page));
  page.step_seconds = std::numeric_limits<double>::quiet_NaN();
  page.collective_wait_seconds = -std::numeric_limits<double>::infinity();
  const RankEvidence found = evidence_from_page(page, Instant(milliseconds(5)));
  EXPECT_EQ(found.groups.size(), kProgressGroupsMax);
  EXPECT_EQ(found.step_seconds, 0);
  EXPECT_EQ(found.collective_wait_seconds, 0);
  EXPECT_EQ(found.phase_age, Duration{});
  page.phase_start_ns = std::numeric_limits<int64_t>::min();
  page.last_progress_ns = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(evidence_from_page(page, Instant(milliseconds(5))).progress_age, Duration{});
}

}  // namespace
}  // namespace muster
