#include "coordinator/core/hang/dump.h"

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

// A sample of a rank that waits in collective `seq` of its group or, if `seq` is 0, computes in
// `place`.
struct RankSample {
  int32_t rank;
  uint64_t seq;
  std::string place;
  std::string leaf = "leaf";
};

StackReportReceived report(const char* worker, int32_t sample,
                           const std::vector<RankSample>& rank_samples,
                           const std::string& group = "fsdp") {
  StackReportReceived event;
  event.worker = WorkerName(worker);
  event.dump = DumpId(1);
  event.job = JobId(1);
  event.attempt = Attempt(1);
  event.sample = sample;
  StackSample stacks;
  for (const RankSample& rank_sample : rank_samples) {
    RankEvidence& rank = event.ranks.emplace_back();
    rank.rank = rank_sample.rank;
    rank.phase = Phase::kStep;
    rank.step = 4;
    rank.process_state = 'S';
    GroupEvidence& its = rank.groups.emplace_back();
    its.name = group;
    its.enqueued = rank_sample.seq == 0 ? 40 : rank_sample.seq;
    its.started = its.enqueued;
    its.completed = rank_sample.seq == 0 ? 40 : rank_sample.seq - 1;
    RankStacks& read = stacks.ranks.emplace_back();
    read.rank = rank_sample.rank;
    ThreadStack& thread = read.threads.emplace_back();
    thread.name = "main";
    for (const std::string& call : {std::string("main"), rank_sample.place, rank_sample.leaf})
      thread.frames.push_back({kNoModule, 0, call});
  }
  event.stacks.add(stacks);
  return event;
}

Dump two_workers(int32_t samples = 2) {
  return {JobId(1),
          Attempt(1),
          samples,
          {{WorkerName("a"), {Rank(0), Rank(1)}}, {WorkerName("b"), {Rank(2)}}}};
}

Motion motion_of(const std::vector<RankSample>& first, const std::vector<RankSample>& second,
                 const std::string& group = "fsdp") {
  Dump dump(JobId(1), Attempt(1), 2, {{WorkerName("a"), {Rank(0), Rank(1), Rank(2)}}});
  EXPECT_TRUE(dump.add(report("a", 0, first, group)));
  EXPECT_TRUE(dump.add(report("a", 1, second, group)));
  return motion_in(dump, {{Rank(2), "is on a worker that does not answer"}});
}

TEST(Dump, WaitsForEverySampleOfEveryRequestedWorker) {
  Dump dump = two_workers();
  EXPECT_EQ(dump.silent().size(), 2U);
  EXPECT_TRUE(dump.add(report("a", 0, {{0, 41, "x"}, {1, 41, "x"}})));
  EXPECT_FALSE(dump.add(report("a", 0, {{0, 41, "y"}}))) << "a duplicate";
  EXPECT_FALSE(dump.add(report("c", 0, {{0, 41, "x"}}))) << "no report was requested from worker c";
  EXPECT_FALSE(dump.add(report("a", 2, {})));
  EXPECT_FALSE(dump.add(report("a", -1, {})));
  StackReportReceived other = report("b", 0, {});
  other.attempt = Attempt(2);
  EXPECT_FALSE(dump.add(other));
  EXPECT_TRUE(dump.add(report("a", 1, {{0, 41, "x"}, {1, 41, "x"}})));
  EXPECT_EQ(dump.waiting(), std::set<WorkerName>{WorkerName("b")});
  EXPECT_EQ(dump.silent(), std::vector<WorkerName>{WorkerName("b")});
  EXPECT_TRUE(
      dump.add(report("b", 0, {{2, 41, "x"}, {1, 99, "a lie about another worker's rank"}})));
  EXPECT_TRUE(dump.add(report("b", 1, {{2, 41, "x"}})));
  EXPECT_TRUE(dump.waiting().empty());
  ASSERT_EQ(dump.ranks(0).size(), 3U);
  EXPECT_EQ(dump.ranks(0)[1].groups[0].enqueued, 41U);
}

TEST(Dump, ListsRanksOfSilentWorkersAsSuch) {
  Dump dump = two_workers(1);
  EXPECT_TRUE(dump.add(report("a", 0, {{0, 41, "x"}, {1, 41, "x"}})));
  const JobStackDump people = dump.to_stack_dump();
  ASSERT_EQ(people.ranks.size(), 3U);
  EXPECT_EQ(people.ranks[2].rank, 2);
  EXPECT_EQ(people.ranks[2].stack_problem, "worker b did not answer");
  EXPECT_EQ(people.silent, std::vector<WorkerName>{WorkerName("b")});
}

TEST(Motion, CollectivesThatContinueAreProgress) {
  EXPECT_EQ(motion_of({{0, 41, "x"}, {1, 42, "x"}}, {{0, 41, "x"}, {1, 42, "x"}}), Motion::kNone);
  EXPECT_EQ(motion_of({{0, 41, "x"}, {1, 41, "x"}}, {{0, 41, "x"}, {1, 42, "x"}}),
            Motion::kProgress);
}

TEST(Motion, WhatRunsBesideTheComputationIsNone) {
  EXPECT_EQ(motion_of({{0, 41, "x"}, {1, 0, "y"}}, {{0, 55, "x"}, {1, 0, "y"}}, "data#6"),
            Motion::kUnsure);
  EXPECT_EQ(motion_of({{0, 41, "x"}, {1, 0, "y"}}, {{0, 55, "x"}, {1, 0, "y"}}, "data#1"),
            Motion::kProgress);
}

TEST(Motion, OnlyRanksThatWaitForNoOtherMove) {
  EXPECT_EQ(motion_of({{0, 0, "layer 1"}, {1, 41, "x"}}, {{0, 0, "layer 2"}, {1, 41, "x"}}),
            Motion::kStacks);
  EXPECT_EQ(motion_of({{0, 0, "lock"}, {1, 41, "poll"}}, {{0, 0, "lock"}, {1, 41, "sleep"}}),
            Motion::kUnsure)
      << "a waiting rank may change its stack, and a rank that waits for no other may continue";
}

TEST(Motion, ALoopDoesNotGetAnywhere) {
  EXPECT_EQ(motion_of({{0, 0, "loop", "a"}, {1, 41, "x"}}, {{0, 0, "loop", "b"}, {1, 41, "x"}}),
            Motion::kUnsure);
}

// Two ranks of one group. The first rank is in "read", with one process state per sample; the
// second rank waits in collective 41.
Motion motion_in_state(const char* states, const std::string& problem = "") {
  Dump dump(JobId(1), Attempt(1), 2, {{WorkerName("a"), {Rank(0), Rank(1)}}});
  for (int32_t sample = 0; sample < 2; ++sample) {
    StackReportReceived event = report("a", sample, {{0, 0, "read"}, {1, 41, "x"}});
    event.ranks[0].process_state = states[sample];
    event.ranks[0].stack_problem = problem;
    if (!problem.empty()) event.stacks = StackTree();
    EXPECT_TRUE(dump.add(event));
  }
  return motion_in(dump, {});
}

TEST(Motion, ARankThatWaitsForNoOtherMayContinueUnlessItIsStopped) {
  for (const char* states : {"RR", "DD", "SS", "RT", "tR"})
    EXPECT_EQ(motion_in_state(states), Motion::kUnsure) << states;
  for (const char* states : {"TT", "ZZ"})
    EXPECT_EQ(motion_in_state(states), Motion::kNone) << states;
  EXPECT_EQ(motion_in_state("TT", "not permitted"), Motion::kNone);
  EXPECT_EQ(motion_in_state("SS", "not permitted"), Motion::kUnsure);
  EXPECT_EQ(motion_in_state("tt", ""), Motion::kUnsure) << "a person debugs the rank";
}

// Collective `seq` of a group of all ranks.
Motion motion_of_waiting(const std::vector<RankSample>& rank_samples, CollectiveKind other) {
  Dump dump(JobId(1), Attempt(1), 2, {{WorkerName("a"), {Rank(0), Rank(1), Rank(2)}}});
  for (int32_t sample = 0; sample < 2; ++sample) {
    StackReportReceived event = report("a", sample, rank_samples);
    for (RankEvidence& rank : event.ranks) {
      rank.groups[0].members = 3;
      rank.groups[0].kind = CollectiveKind::kAllReduce;
    }
    event.ranks.back().groups[0].kind = other;
    EXPECT_TRUE(dump.add(event));
  }
  return motion_in(dump, {});
}

TEST(Motion, WhatEverybodyHasEnteredMayBeCompleted) {
  constexpr CollectiveKind kSum = CollectiveKind::kAllReduce;
  EXPECT_EQ(motion_of_waiting({{0, 41, "x"}, {1, 41, "x"}, {2, 41, "x"}}, kSum), Motion::kUnsure);
  EXPECT_EQ(motion_of_waiting({{0, 41, "x"}, {1, 41, "x"}, {2, 42, "x"}}, kSum), Motion::kNone);
  EXPECT_EQ(motion_of_waiting({{0, 41, "x"}, {1, 41, "x"}, {2, 41, "x"}}, CollectiveKind::kBarrier),
            Motion::kNone);
}

TEST(Motion, ALateWorkersRanksAreUnknown) {
  Dump dump = two_workers();
  for (int32_t sample = 0; sample < 2; ++sample)
    EXPECT_TRUE(dump.add(report("a", sample, {{0, 41, "x"}, {1, 42, "x"}})));
  EXPECT_EQ(motion_in(dump, {}), Motion::kUnseen);
  EXPECT_EQ(motion_in(dump, {{Rank(2), "exited with code 1"}}), Motion::kNone);
  EXPECT_TRUE(dump.add(report("b", 0, {{2, 0, "x"}})));
  EXPECT_EQ(motion_in(dump, {}), Motion::kUnseen) << "one sample is not enough";
}

// The activities of rank 0 in two samples, a second apart. Rank 1 waits for others and polls.
Standstill standstill_of(const ProcessActivity& first, const ProcessActivity& second,
                         const Activities& since = {}, Duration elapsed = Duration::zero()) {
  Dump dump(JobId(1), Attempt(1), 2, {{WorkerName("a"), {Rank(0), Rank(1)}}});
  for (const int32_t sample : {0, 1}) {
    StackReportReceived event = report("a", sample, {{0, 0, "x"}, {1, 41, "x"}});
    event.ranks[0].activity = sample == 0 ? first : second;
    event.ranks[1].activity = {.is_known = true, .cpu = std::chrono::seconds(sample), .busy = 1};
    EXPECT_TRUE(dump.add(event));
  }
  return standstill_in(dump, {}, since, elapsed);
}

TEST(Dump, AJobWhoseProcessesDoNothingIsIdle) {
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  const ProcessActivity idle{.is_known = true, .cpu = seconds(7), .io_bytes = 5000};
  EXPECT_EQ(standstill_of(idle, idle), Standstill::kIdle);
  const auto with = [&](auto change) {
    ProcessActivity activity = idle;
    change(activity);
    return activity;
  };
  const auto may_continue = [&](const ProcessActivity& later) {
    return standstill_of(idle, later) == Standstill::kMayContinue;
  };
  EXPECT_FALSE(may_continue(with([](auto& a) { a.cpu += milliseconds(20); }))) << "a watchdog";
  EXPECT_TRUE(may_continue(with([](auto& a) { a.cpu += milliseconds(500); })));
  EXPECT_TRUE(may_continue(with([](auto& a) { a.io_bytes += 1 << 20; })));
  EXPECT_TRUE(may_continue(with([](auto& a) { a.busy = 1; }))) << "starved by its neighbours";
  EXPECT_TRUE(may_continue(with([](auto& a) { a.is_asleep = true; })));
  EXPECT_TRUE(may_continue(with([](auto& a) { a.has_device = true; })));
  EXPECT_TRUE(may_continue({})) << "an earlier worker";
  // It worked between this dump and an earlier one.
  const ProcessActivity earlier{.is_known = true, .cpu = seconds(3), .io_bytes = 5000};
  EXPECT_EQ(standstill_of(idle, idle, {{0, earlier}}, seconds(8)), Standstill::kMayContinue);
  EXPECT_EQ(standstill_of(idle, idle, {{0, idle}}, seconds(8)), Standstill::kIdle);
}

TEST(Dump, AChildThatIsStoppedInBothSamplesIsFoundIfItsRankDoesNothingElse) {
  const ProcessActivity idle{.is_known = true};
  ProcessActivity stopped = idle;
  stopped.stopped_pid = 4711;
  EXPECT_EQ(standstill_of(stopped, stopped), Standstill::kStoppedChild);
  EXPECT_EQ(standstill_of(idle, stopped), Standstill::kIdle);
  ProcessActivity evaluates = stopped;
  evaluates.busy = 3;
  EXPECT_EQ(standstill_of(stopped, evaluates), Standstill::kMayContinue);
  evaluates = stopped;
  evaluates.cpu = std::chrono::seconds(1);
  EXPECT_EQ(standstill_of(stopped, evaluates), Standstill::kMayContinue);
  EXPECT_EQ(standstill_of(evaluates, evaluates, {{0, stopped}}, std::chrono::seconds(8)),
            Standstill::kMayContinue);
}

}  // namespace
}  // namespace muster::coordinator
