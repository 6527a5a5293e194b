#include "tests/unit/worker/core/core_fixture.h"

namespace muster::worker {
namespace {

NodeCheckDone done(bool passed) { return {passed, 0.25, passed ? "good" : "core 3", "8 cores"}; }

TEST_F(CoreTest, ANodeCheckRunsAndReportsOnce) {
  connect();
  EXPECT_EQ(actions_of<RunNodeCheck>(step(CheckNode{Epoch(1), 7})).size(), 1U);
  const auto sent = actions_of<SendNodeChecked>(step(done(false)));
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].check, 7U);
  EXPECT_FALSE(sent[0].passed);
  EXPECT_EQ(sent[0].sentence, "core 3");
  EXPECT_TRUE(actions_of<SendNodeChecked>(step(done(true))).empty());
}

TEST_F(CoreTest, AnotherRequestIsAnsweredByTheCheckThatRuns) {
  connect();
  step(CheckNode{Epoch(1), 7});
  EXPECT_TRUE(actions_of<RunNodeCheck>(step(CheckNode{Epoch(1), 8})).empty());
  const auto sent = actions_of<SendNodeChecked>(step(done(true)));
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].check, 8U);
  EXPECT_EQ(actions_of<RunNodeCheck>(step(CheckNode{Epoch(1), 9})).size(), 1U);
}

TEST_F(CoreTest, RequestsOfAnEarlierStreamAreNotAnswered) {
  connect();
  step(CheckNode{Epoch(1), 7});
  step(Disconnected{StreamEnd::kBroken, "cut"});
  now += seconds(2);
  connect();
  EXPECT_TRUE(actions_of<SendNodeChecked>(step(done(true))).empty());
  EXPECT_TRUE(actions_of<RunNodeCheck>(step(CheckNode{Epoch(0), 1})).empty())
      << "of an older epoch";
}

CheckNode deep(uint64_t check) {
  CheckNode event{Epoch(1), check};
  event.deep.emplace().seconds = 2;
  return event;
}

DeepCheckDone deep_done(bool passed) { return {done(passed), {.kind = "cpu", .measurements = {}}}; }

TEST_F(CoreTest, ADeepCheckRunsBesideTheShortOne) {
  connect();
  const auto runs = actions_of<RunDeepCheck>(step(deep(7)));
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].order.seconds, 2);
  EXPECT_EQ(actions_of<RunNodeCheck>(step(CheckNode{Epoch(1), 8})).size(), 1U);
  const auto sent = actions_of<SendNodeChecked>(step(deep_done(true)));
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].check, 7U);
  EXPECT_TRUE(sent[0].passed);
  ASSERT_TRUE(sent[0].deep);
  EXPECT_EQ(sent[0].deep->kind, "cpu");
}

TEST_F(CoreTest, RanksWaitForTheEndOfADeepCheck) {
  connect();
  step(deep(7));
  const ActionList actions = step(start(1, 1, 1));
  EXPECT_EQ(actions_of<StopDeepCheck>(actions).size(), 1U);
  EXPECT_TRUE(actions_of<SpawnRank>(actions).empty()) << "the check still has the GPUs";
  EXPECT_TRUE(actions_of<SendNodeChecked>(step(deep(8))).empty()) << "the first one still ends";
  DeepCheckDone ended = deep_done(false);
  ended.figures.stopped = true;
  const ActionList after = step(ended);
  EXPECT_EQ(actions_of<SpawnRank>(after).size(), 1U);
  const auto sent = actions_of<SendNodeChecked>(after);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].check, 8U);
  EXPECT_EQ(sent[0].sentence, "ranks need the node");
  ASSERT_TRUE(sent[0].deep);
  EXPECT_TRUE(sent[0].deep->stopped);
}

TEST_F(CoreTest, ADeepCheckThatCannotBeKilledDelaysRanksForFiveSeconds) {
  connect();
  step(deep(7));
  step(start(1, 1, 1));
  now += seconds(4);
  EXPECT_TRUE(actions_of<SpawnRank>(step(start(2, 1, 1))).empty());
  EXPECT_TRUE(actions_of<SpawnRank>(step(Tick{})).empty());
  now += seconds(1);
  ASSERT_TRUE(core.next_deadline());
  EXPECT_LE(*core.next_deadline(), now);
  EXPECT_EQ(actions_of<SpawnRank>(step(Tick{})).size(), 2U);
  EXPECT_TRUE(actions_of<SpawnRank>(step(deep_done(false))).empty());
}

TEST_F(CoreTest, ARankThatWaitsForTheEndOfADeepCheckCanBeStopped) {
  connect();
  step(deep(7));
  step(start(1, 1, 1));
  EXPECT_EQ(actions_of<SendRankExited>(step(stop(1, 1, seconds(10)))).size(), 1U);
  EXPECT_TRUE(actions_of<SpawnRank>(step(deep_done(false))).empty());
}

TEST_F(CoreTest, ANewDeepCheckReplacesTheOneThatRuns) {
  connect();
  step(deep(7));
  const ActionList second = step(deep(8));
  EXPECT_EQ(actions_of<StopDeepCheck>(second).size(), 1U);
  EXPECT_TRUE(actions_of<RunDeepCheck>(second).empty());
  const ActionList ended = step(deep_done(false));
  EXPECT_TRUE(actions_of<SendNodeChecked>(ended).empty());
  EXPECT_EQ(actions_of<RunDeepCheck>(ended).size(), 1U);
  EXPECT_EQ(actions_of<SendNodeChecked>(step(deep_done(true))).size(), 1U);
}

TEST_F(CoreTest, TheEndOfTheStreamEndsADeepCheck) {
  connect();
  step(deep(7));
  EXPECT_EQ(actions_of<StopDeepCheck>(step(Disconnected{StreamEnd::kBroken, "cut"})).size(), 1U);
  now += seconds(2);
  connect();
  EXPECT_TRUE(actions_of<SendNodeChecked>(step(deep_done(true))).empty());
}

}  // namespace
}  // namespace muster::worker
