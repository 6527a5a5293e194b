#include "coordinator/core/hang/slow_node_watch.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

constexpr Duration kConfirmed = std::chrono::minutes(5);

// A job whose ranks compute and wait for each other, with a page of each rank after each step.
class NodesJob {
 public:
  NodesJob(int32_t nodes, int32_t per_node)
      : compute(static_cast<size_t>(nodes * per_node), 1),
        stragglers(compute.size()),
        history(compute.size()),
        pages_(compute.size()) {
    job.spec.nodes = nodes;
    job.spec.ranks_per_node = per_node;
    for (int32_t rank = 0; rank < nodes * per_node; ++rank) {
      job.placement.push_back(
          {Rank(rank), WorkerName("node" + std::to_string(rank / per_node + 1)), rank % per_node});
    }
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      double longest = 0;
      std::vector<double> own;
      for (const double seconds : compute) {
        own.push_back(seconds * (1 + noise * (static_cast<double>(random() % 1'000) / 500 - 1)));
        longest = std::max(longest, own.back());
      }
      for (size_t r = 0; r < own.size(); ++r) {
        ++pages_[r].steps;
        pages_[r].seconds += longest + 0.1;
        if (reports_waits) pages_[r].collective_wait += longest + 0.1 - own[r];
        stragglers.observe(r, pages_[r]);
      }
      now += std::chrono::duration_cast<Duration>(std::chrono::duration<double>(longest + 0.1));
      if (!stragglers.sample_is_due()) continue;
      stragglers.evaluate(now);
      for (const SlowNodeWatch::Change& change : watch.compare(stragglers, history, job, now))
        changes.push_back(change);
    }
  }
  void run_with_history() {
    for (int i = 0; i < 12; ++i) {
      run(270);
      history.remember(stragglers);
    }
  }

  std::vector<double> compute;
  double noise = 0.02;
  bool reports_waits = true;
  std::mt19937_64 random{5};
  Job job;
  Instant now{};
  Stragglers stragglers;
  RankHistory history;
  SlowNodeWatch watch{kConfirmed};
  std::vector<SlowNodeWatch::Change> changes;

 private:
  std::vector<Stragglers::Sample> pages_;
};

TEST(SlowNodeWatch, ConfirmsANodeAfterItsWindowUntilItIsFast) {
  const std::pair<int32_t, int32_t> sizes[] = {{2, 1}, {2, 8}, {16, 4}};
  for (const auto& [nodes, per_node] : sizes) {
    NodesJob job(nodes, per_node);
    job.run_with_history();
    EXPECT_TRUE(job.changes.empty());
    // All ranks of the second node.
    for (int32_t local = 0; local < per_node; ++local)
      job.compute[static_cast<size_t>(per_node + local)] = 1.3;
    job.run(200);  // 280 s
    EXPECT_TRUE(job.changes.empty()) << nodes;
    job.run(60);
    ASSERT_EQ(job.changes.size(), 1U) << nodes;
    EXPECT_TRUE(job.changes[0].is_slow);
    EXPECT_EQ(job.changes[0].worker, WorkerName("node2"));
    EXPECT_NEAR(job.changes[0].seconds, 1.3, 0.05);
    EXPECT_NEAR(job.changes[0].others, 1, 0.05);
    EXPECT_TRUE(job.watch.is_slow(WorkerName("node2")));
    job.job.slow_nodes.emplace_back().worker = WorkerName("node2");
    job.run(1000);
    EXPECT_EQ(job.changes.size(), 1U);
    std::ranges::fill(job.compute, 1);
    job.run(320);
    ASSERT_EQ(job.changes.size(), 2U) << nodes;
    EXPECT_FALSE(job.changes[1].is_slow);
    EXPECT_FALSE(job.watch.is_slow(WorkerName("node2")));
  }
}

TEST(SlowNodeWatch, OneSlowRankMakesItsNodeSlow) {
  NodesJob job(4, 8);
  job.run_with_history();
  job.compute[19] = 1.25;
  job.run(300);
  ASSERT_EQ(job.changes.size(), 1U);
  EXPECT_EQ(job.changes[0].worker, WorkerName("node3"));
  EXPECT_EQ(job.changes[0].rank, Rank(19));
}

// The first ranks of nodes have more work, and so has the last node.
TEST(SlowNodeWatch, UnevenWorkIsNoFaultOfANode) {
  NodesJob job(4, 2);
  for (size_t rank = 0; rank < 8; rank += 2) job.compute[rank] = 1.4;
  job.compute[6] = 1.9;
  job.compute[7] = 1.5;
  job.run_with_history();
  job.run(2000);
  EXPECT_TRUE(job.changes.empty());
}

TEST(SlowNodeWatch, AnEarlierConfirmationNeedsNoHistory) {
  NodesJob job(4, 2);
  job.compute[3] = 1.3;
  job.run(400);
  EXPECT_TRUE(job.changes.empty());
  SlowNode& known = job.job.slow_nodes.emplace_back();
  known.worker = WorkerName("node2");
  job.run(400);
  ASSERT_EQ(job.changes.size(), 1U);
  EXPECT_TRUE(job.changes[0].is_slow);
}

// Such as after a restart of the coordinator.
TEST(SlowNodeWatch, ARecordedNodeThatIsFastIsForgotten) {
  NodesJob job(4, 2);
  job.job.slow_nodes.emplace_back().worker = WorkerName("node2");
  job.run(400);
  ASSERT_EQ(job.changes.size(), 1U);
  EXPECT_FALSE(job.changes[0].is_slow);
  EXPECT_EQ(job.changes[0].worker, WorkerName("node2"));
}

// A node of a pipeline becomes slow, but its last stage, on another node, takes longer.
TEST(SlowNodeWatch, ANodeThatTheJobDoesNotWaitForIsNotConfirmed) {
  NodesJob job(4, 2);
  job.compute[6] = job.compute[7] = 1.9;
  job.run_with_history();
  job.compute[2] = job.compute[3] = 1.3;
  job.run(600);
  EXPECT_TRUE(job.changes.empty());
  job.compute[2] = 2.4;
  job.run(400);
  ASSERT_EQ(job.changes.size(), 1U);
  EXPECT_NEAR(job.changes[0].others, 1.9, 0.1);
}

// The batch grows, and with it the time of every rank.
TEST(SlowNodeWatch, UnevenWorkThatGrowsEverywhereIsNoFaultOfANode) {
  NodesJob job(4, 2);
  job.compute[6] = job.compute[7] = 1.4;
  job.run_with_history();
  for (double& seconds : job.compute) seconds *= 2;
  job.run(600);
  EXPECT_TRUE(job.changes.empty());
}

TEST(SlowNodeWatch, AConfirmedNodeStaysSoWhileOthersBecomeSlow) {
  NodesJob job(4, 2);
  job.run_with_history();
  job.compute[2] = 1.5;
  job.run(400);
  ASSERT_EQ(job.changes.size(), 1U);
  job.job.slow_nodes.emplace_back().worker = WorkerName("node2");
  job.compute[4] = 1.5;
  job.run(600);
  EXPECT_EQ(job.changes.size(), 1U);
  EXPECT_TRUE(job.watch.is_slow(WorkerName("node2")));
}

// A step is measured without slow nodes only after the nodes were compared for a while.
TEST(SlowNodeWatch, IsQuietWithoutSlowNodes) {
  NodesJob job(4, 2);
  EXPECT_FALSE(job.watch.is_quiet(job.now));
  job.run(400);
  EXPECT_TRUE(job.watch.is_quiet(job.now));
  job.run_with_history();
  job.compute[2] = 1.5;
  job.run(150);
  EXPECT_FALSE(job.watch.is_quiet(job.now));
  job.compute[2] = 1;
  job.run(300);
  EXPECT_FALSE(job.watch.is_quiet(job.now));
  job.run(500);
  EXPECT_TRUE(job.watch.is_quiet(job.now));
}

TEST(SlowNodeWatch, ManySlowNodesShareACause) {
  NodesJob job(8, 2);
  job.run_with_history();
  for (size_t rank = 0; rank < 6; ++rank) job.compute[rank] = 1.3;
  job.run(600);
  EXPECT_TRUE(job.changes.empty());
}

TEST(SlowNodeWatch, ConfirmsNoneWithoutWaitsAndSamples) {
  NodesJob job(2, 1);
  job.reports_waits = false;
  job.run_with_history();
  job.compute[1] = 1.5;
  job.run(600);
  EXPECT_TRUE(job.changes.empty());
}

// Two days in which ranks differ by chance, and nodes are disturbed for some minutes.
TEST(SlowNodeWatch, NoiseAndDisturbancesConfirmNone) {
  NodesJob job(4, 2);
  job.noise = 0.25;
  job.run_with_history();
  for (int i = 0; i < 300; ++i) {
    const size_t node = job.random() % 4;
    job.compute[2 * node] = 1.5;
    job.run(100);
    job.compute[2 * node] = 1;
    job.run(300);
  }
  EXPECT_TRUE(job.changes.empty());
}

}  // namespace
}  // namespace muster::coordinator
