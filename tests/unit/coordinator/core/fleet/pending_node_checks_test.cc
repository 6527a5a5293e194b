#include "coordinator/core/fleet/pending_node_checks.h"

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

using std::chrono::seconds;

class NodeChecksTest : public testing::Test {
 protected:
  NodeChecksTest() : fleet(options) {
    nodes.set_time(now, 1'700'000'000'000'000'000);
    WorkerRegistered event;
    event.worker = node;
    event.slots = 1;
    fleet.add(event, now);
  }
  Worker& worker() { return fleet.at(node); }
  static const NodeDecision& decision_of(const Action& action) {
    return std::get<NodeDecision>(action);
  }
  static uint64_t check_in(const Action& action) {
    return std::get<SendCheckNode>(std::get<SendToWorker>(action).payload).check;
  }

  const WorkerName node{"node1"};
  CoreOptions options;
  Instant now = instant_from_ns(1'000'000'000'000);
  NodeBook nodes;
  Fleet fleet;
  PendingNodeChecks checks;
};

TEST_F(NodeChecksTest, OneCheckIsPendingAtATime) {
  const ActionList first = checks.request(worker(), now);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(check_in(first.front()), 1U);
  EXPECT_EQ(worker().check.deadline, now + kCheckDeadline);
  EXPECT_TRUE(checks.request(worker(), now).empty());
  worker().check.id = 0;
  EXPECT_EQ(check_in(checks.request(worker(), now).front()), 2U);
}

TEST_F(NodeChecksTest, AWorkerThatCannotAnswerGetsNoRequest) {
  worker().leaving = true;
  EXPECT_TRUE(checks.request(worker(), now).empty());
  worker().leaving = false;
  worker().connected = false;
  EXPECT_TRUE(checks.request(worker(), now).empty());
}

TEST_F(NodeChecksTest, ASuspectedNodeIsExcludedAndChecked) {
  worker().check.passed = now;
  const ActionList actions =
      checks.suspect(nodes, fleet, node, {Suspicion::kStuck, "rank 1 hung there"}, now);
  ASSERT_EQ(actions.size(), 2U);
  EXPECT_EQ(decision_of(actions[0]).text, "is left out: stuck process: rank 1 hung there");
  EXPECT_EQ(check_in(actions[1]), 1U);
  EXPECT_FALSE(worker().check.passed) << "an earlier result no longer counts";
  EXPECT_TRUE(nodes.is_excluded(node));
}

TEST_F(NodeChecksTest, AnExclusionThatNeedsNoCheckRequestsNone) {
  EXPECT_EQ(checks.suspect(nodes, fleet, node, {Suspicion::kFaults, "twice"}, now).size(), 1U);
}

TEST_F(NodeChecksTest, ANodeWhoseRanksWereGivenUpIsCheckedWhenItReports) {
  worker().given_up = true;
  EXPECT_EQ(checks.suspect(nodes, fleet, node, {Suspicion::kWorkerLost, "it is lost"}, now).size(),
            1U);
}

TEST_F(NodeChecksTest, AFailedCheckExcludesAndAPassedOneIsRemembered) {
  (void)checks.request(worker(), now);
  ActionList actions = conclude_check(nodes, worker(), {true, 0.5, "8 GPUs work", ""}, now);
  ASSERT_EQ(actions.size(), 1U);
  EXPECT_EQ(decision_of(actions[0]).what, NodeDecision::What::kCheckPassed);
  EXPECT_EQ(decision_of(actions[0]).text, "has passed its check in 0.50 s: 8 GPUs work");
  EXPECT_EQ(worker().check.passed, now);
  EXPECT_EQ(worker().check.id, 0U);

  actions = conclude_check(nodes, worker(), {false, 1, "GPU 3 is lost", ""}, now);
  ASSERT_EQ(actions.size(), 2U);
  EXPECT_EQ(decision_of(actions[0]).what, NodeDecision::What::kCheckFailed);
  EXPECT_EQ(decision_of(actions[1]).what, NodeDecision::What::kExcluded);
  EXPECT_FALSE(worker().check.passed);
  EXPECT_EQ(worker().check.failed, now);
}

TEST_F(NodeChecksTest, ACheckWithoutAnAnswerHasFailed) {
  nodes.require_check(node);
  ActionList actions = checks.run_due(nodes, fleet, now);
  ASSERT_EQ(actions.size(), 1U);
  EXPECT_EQ(check_in(actions[0]), 1U);
  EXPECT_TRUE(checks.run_due(nodes, fleet, now + kCheckDeadline - seconds(1)).empty());
  actions = checks.run_due(nodes, fleet, now + kCheckDeadline);
  ASSERT_EQ(actions.size(), 2U);
  EXPECT_EQ(decision_of(actions[0]).text,
            "has failed its check in 10.00 s: it did not answer within 10 s");
  EXPECT_TRUE(nodes.is_excluded(node));
}

}  // namespace
}  // namespace muster::coordinator
