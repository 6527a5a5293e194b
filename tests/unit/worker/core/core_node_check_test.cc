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

}  // namespace
}  // namespace muster::worker
