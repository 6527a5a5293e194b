#include "coordinator/core/fleet/exclusions.h"

#include <string>

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

const WorkerName kNode("node1");

class NodeBookTest : public testing::Test {
 protected:
  void pass(Duration time) {
    now += time;
    unix_ns += time.count();
    book.set_time(now, unix_ns);
  }
  void SetUp() override { pass(minutes(1)); }

  // Stores the book and restores it in another coordinator, whose clock starts again from 0.
  void restart(Duration away) {
    std::vector<NodeRecord> stored;
    for (const auto& [name, node] : book.records()) stored.push_back(node);
    book = NodeBook(stored);
    now = Instant{};
    unix_ns += away.count();
    book.set_time(now, unix_ns);
  }

  NodeBook book;
  Instant now{};
  int64_t unix_ns = 1'700'000'000'000'000'000;
};

TEST_F(NodeBookTest, TimeAndThenACheck) {
  EXPECT_TRUE(book.is_sound(kNode));
  EXPECT_TRUE(book.exclude(kNode, Suspicion::kWorkerLost, "it was restarted"));
  pass(minutes(9));
  EXPECT_TRUE(book.is_excluded(kNode));
  book.note_check(kNode, {true, 0.1, "good", ""});
  EXPECT_FALSE(book.is_sound(kNode)) << "before the end of the exclusion";
  pass(minutes(2));
  EXPECT_FALSE(book.is_excluded(kNode));
  EXPECT_TRUE(book.awaits_check(kNode));
  book.note_check(kNode, {true, 0.1, "good", ""});
  EXPECT_TRUE(book.is_sound(kNode));
}

TEST_F(NodeBookTest, EachExclusionWithinADayIsTwiceAsLongUpToADay) {
  Duration expected = kExclusionFirst;
  for (int32_t times = 1; times <= 12; ++times) {
    ASSERT_TRUE(book.exclude(kNode, Suspicion::kNotStarted, "late"));
    EXPECT_EQ(book.find(kNode)->times, times);
    pass(expected - minutes(1));
    EXPECT_TRUE(book.is_excluded(kNode)) << times;
    pass(minutes(1));
    EXPECT_FALSE(book.is_excluded(kNode)) << times;
    if (expected == kExclusionMax) break;
    expected = std::min<Duration>(2 * expected, kExclusionMax);
  }
  EXPECT_EQ(expected, kExclusionMax);
  book.note_check(kNode, {true, 0.1, "good", ""});
  pass(hours(23));
  ASSERT_NE(book.find(kNode), nullptr) << "a day after its end";
  const int32_t times = book.find(kNode)->times;
  book.exclude(kNode, Suspicion::kNotStarted, "late");
  EXPECT_EQ(book.find(kNode)->times, times + 1);
  pass(hours(24 + 25));
  book.exclude(kNode, Suspicion::kNotStarted, "late");
  EXPECT_EQ(book.find(kNode)->times, 1) << "after a day without faults the record is deleted";
}

TEST_F(NodeBookTest, AnotherReasonMakesItNoLonger) {
  book.exclude(kNode, Suspicion::kFaults, "two faults");
  pass(minutes(5));
  EXPECT_TRUE(book.exclude(kNode, Suspicion::kCheckFailed, "core 3"));
  EXPECT_EQ(book.find(kNode)->reason, "core 3");
  EXPECT_FALSE(book.exclude(kNode, Suspicion::kFaults, "two more"))
      << "a suspicion without a check does not replace one that requires a check";
  EXPECT_EQ(book.find(kNode)->suspicion, Suspicion::kCheckFailed);
  pass(minutes(5));
  EXPECT_FALSE(book.is_excluded(kNode));
}

TEST_F(NodeBookTest, APersonsWordStandsAboveSuspicions) {
  book.exclude(kNode, Suspicion::kPerson, "fan");
  EXPECT_FALSE(book.exclude(kNode, Suspicion::kWorkerLost, "gone"));
  pass(hours(1000));
  EXPECT_TRUE(book.is_excluded(kNode)) << "until the node is admitted";
  EXPECT_EQ(exclusion_text(*book.find(kNode)), "node1 (excluded by hand: fan)");
  book.admit(kNode);
  EXPECT_TRUE(book.is_sound(kNode));
  EXPECT_EQ(book.find(kNode), nullptr);
}

TEST_F(NodeBookTest, ADrainStaysWithItsExclusionAndEndsWithIt) {
  const int64_t at = unix_ns + Duration(minutes(50)).count();
  book.exclude(kNode, Suspicion::kPerson, "kernel update");
  book.plan_drain(kNode, at, "kernel update");
  book.exclude(kNode, Suspicion::kPerson, "fan", Duration(minutes(5)));
  EXPECT_EQ(book.find(kNode)->drain_unix_ns, at) << "another exclusion keeps the drain";
  pass(minutes(49));
  EXPECT_TRUE(book.is_excluded(kNode)) << "until the drain";
  EXPECT_TRUE(book.drains().contains(kNode));
  pass(minutes(1));
  EXPECT_FALSE(book.is_excluded(kNode));
  EXPECT_EQ(book.drains(), std::set<WorkerName>());
  EXPECT_EQ(book.find(kNode)->drain_unix_ns, 0);
}

TEST_F(NodeBookTest, AFarDrainOutlivesExclusionsAndItsRecordIsNotForgotten) {
  const int64_t at = unix_ns + Duration(hours(24 * 7)).count();
  book.plan_drain(kNode, at, "kernel update");
  EXPECT_TRUE(book.is_sound(kNode)) << "ranks may be placed there";
  book.exclude(kNode, Suspicion::kPerson, "fan", Duration(minutes(5)));
  pass(minutes(5));
  EXPECT_FALSE(book.is_excluded(kNode));
  pass(hours(24 * 6));
  EXPECT_TRUE(book.drains().contains(kNode));
  ASSERT_NE(book.find(kNode), nullptr);
  EXPECT_EQ(book.find(kNode)->drain_unix_ns, at);
  EXPECT_EQ(book.find(kNode)->drain_reason, "kernel update");
}

TEST_F(NodeBookTest, ADrainThatIsPostponedEndsItsOwnExclusionAndNoOther) {
  const auto in = [&](Duration time) { return unix_ns + time.count(); };
  book.plan_drain(kNode, in(minutes(30)), "kernel update");
  book.exclude_for_drain(kNode);
  EXPECT_TRUE(book.is_excluded(kNode));
  book.plan_drain(kNode, in(hours(24)), "kernel update");
  EXPECT_TRUE(book.awaits_check(kNode));
  EXPECT_TRUE(book.drains().contains(kNode));
  book.plan_drain(kNode, in(minutes(30)), "kernel update");
  book.exclude(kNode, Suspicion::kPerson, "fan");
  book.plan_drain(kNode, in(hours(24)), "kernel update");
  EXPECT_TRUE(book.is_excluded(kNode));
}

TEST_F(NodeBookTest, AnExclusionByHandDoesNotShortenThatOfADrain) {
  book.plan_drain(kNode, unix_ns + Duration(minutes(10)).count(), "kernel update");
  book.exclude_for_drain(kNode, minutes(30));
  book.exclude(kNode, Suspicion::kPerson, "fan", minutes(5));
  EXPECT_TRUE(book.find(kNode)->for_drain);
  pass(minutes(29));
  EXPECT_TRUE(book.is_excluded(kNode)) << "the fan does not end the maintenance";
  pass(minutes(1));
  EXPECT_FALSE(book.is_excluded(kNode));
  book.plan_drain(kNode, unix_ns + Duration(minutes(10)).count(), "kernel update");
  book.exclude_for_drain(kNode);
  book.exclude(kNode, Suspicion::kPerson, "fan", minutes(5));
  EXPECT_EQ(book.find(kNode)->until_unix_ns, 0) << "until it is admitted";
  book.exclude_for_drain(kNode, minutes(20));
  pass(minutes(20));
  EXPECT_FALSE(book.is_excluded(kNode)) << "a new plan replaces the former one";
}

TEST_F(NodeBookTest, TwoFaultsWithinAnHourCount) {
  std::string reason;
  EXPECT_FALSE(book.count_fault(kNode, JobId(1), "rank 1 died", reason));
  EXPECT_TRUE(book.is_sound(kNode)) << "one fault does not exclude the node";
  pass(minutes(61));
  EXPECT_FALSE(book.count_fault(kNode, JobId(2), "rank 2 died", reason));
  pass(minutes(59));
  EXPECT_TRUE(book.count_fault(kNode, JobId(3), "rank 3 died", reason));
  EXPECT_EQ(reason, "two faults there within an hour: rank 2 died; rank 3 died");
}

// A program that dies by a signal, then with a code, then by another signal may be broken on any
// node.
TEST_F(NodeBookTest, FaultsOfOneProgramCountOnlyWithAnothers) {
  std::string reason;
  for (int i = 0; i < 3; ++i)
    EXPECT_FALSE(book.count_fault(kNode, JobId(7), "rank 1 died", reason));
  EXPECT_TRUE(book.count_fault(kNode, JobId(0), "rank 1 hung", reason))
      << "a hang counts in any case";
  EXPECT_TRUE(book.count_fault(kNode, JobId(7), "rank 1 died", reason));
  EXPECT_TRUE(book.count_fault(kNode, JobId(8), "rank 0 died", reason));
}

TEST_F(NodeBookTest, WhatCountsForNothingAnyMoreIsForgotten) {
  std::string reason;
  book.count_fault(WorkerName("faulty"), JobId(1), "rank 1 died", reason);
  book.require_check(WorkerName("awaited"));
  book.exclude(WorkerName("lost"), Suspicion::kWorkerLost, "gone");
  book.exclude(kNode, Suspicion::kPerson, "fan");
  book.take_changes();
  EXPECT_EQ(book.next_change(), now + kExclusionFirst);
  pass(minutes(59));
  EXPECT_EQ(book.records().size(), 4U);
  pass(minutes(1));
  EXPECT_EQ(book.find(WorkerName("faulty")), nullptr);
  EXPECT_EQ(book.take_changes().forgotten, std::vector<WorkerName>{WorkerName("faulty")});
  EXPECT_EQ(book.unsound().size(), 3U);
  book.note_check(WorkerName("lost"), {true, 0.1, "good", ""});
  book.note_check(WorkerName("awaited"), {true, 0.1, "good", ""});
  EXPECT_EQ(book.unsound(), std::set<WorkerName>{kNode});
  restart(minutes(61));
  pass(minutes(1));
  EXPECT_EQ(book.find(WorkerName("awaited")), nullptr);
  EXPECT_NE(book.find(WorkerName("lost")), nullptr) << "the next exclusion would be twice as long";
  pass(hours(24));
  EXPECT_EQ(book.find(WorkerName("lost")), nullptr);
  pass(hours(1'000));
  EXPECT_TRUE(book.is_excluded(kNode));
  EXPECT_FALSE(book.next_change().has_value());
}

TEST_F(NodeBookTest, AFailedCheckExcludes) {
  book.require_check(kNode);
  EXPECT_TRUE(book.awaits_check(kNode));
  book.note_check(kNode, {false, 0.2, "core 17 computed a wrong GEMM", ""});
  EXPECT_TRUE(book.is_excluded(kNode));
  EXPECT_EQ(book.find(kNode)->suspicion, Suspicion::kCheckFailed);
  EXPECT_EQ(book.find(kNode)->reason, "core 17 computed a wrong GEMM");
}

TEST_F(NodeBookTest, TimesContinueOverARestart) {
  book.exclude(kNode, Suspicion::kStuck, "D state");
  book.exclude(WorkerName("node2"), Suspicion::kPerson, "fan", hours(2));
  restart(minutes(4));
  EXPECT_TRUE(book.is_excluded(kNode));
  pass(minutes(7));
  EXPECT_TRUE(book.awaits_check(kNode));
  EXPECT_TRUE(book.is_excluded(WorkerName("node2")));
  restart(hours(3));
  EXPECT_TRUE(book.awaits_check(WorkerName("node2")));
}

TEST_F(NodeBookTest, ChangesAreReportedOnce) {
  book.exclude(kNode, Suspicion::kStuck, "D state");
  NodeBook::Changes changes = book.take_changes();
  ASSERT_EQ(changes.stored.size(), 1U);
  EXPECT_EQ(changes.stored[0].worker, kNode);
  EXPECT_TRUE(book.take_changes().stored.empty());
  pass(minutes(11));
  EXPECT_EQ(book.take_changes().stored.size(), 1U) << "the exclusion is over";
  book.admit(kNode);
  changes = book.take_changes();
  EXPECT_TRUE(changes.stored.empty());
  EXPECT_EQ(changes.forgotten, std::vector<WorkerName>{kNode});
}

TEST_F(NodeBookTest, IsBounded) {
  for (size_t i = 0; i < kNodeRecordsMax + 50; ++i) {
    book.require_check(WorkerName("node" + std::to_string(i)));
    if (i % 100 == 0) book.take_changes();
  }
  EXPECT_LE(book.records().size(), kNodeRecordsMax);
}

}  // namespace
}  // namespace muster::coordinator
