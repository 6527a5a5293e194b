#include "coordinator/core/recovery/slow_nodes.h"

#include <functional>
#include <vector>

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

constexpr int64_t kHourOfNs = int64_t{3600} * 1'000'000'000;

Job job_with_a_slow_node() {
  Job job;
  job.spec.nodes = 2;
  job.spec.steps = 10'000;
  for (int32_t rank = 0; rank < 2; ++rank)
    job.placement.push_back({Rank(rank), WorkerName(rank == 0 ? "node1" : "node2")});
  job.ranks.resize(2);
  SlowNode node;
  node.worker = WorkerName("node2");
  node.incident = IncidentId(7);
  node.unix_ns = node.left_unix_ns = kHourOfNs;
  node.nodes = 2;
  node.step_seconds = 1.3;
  node.excess_seconds = 0.3;
  add_slow_node(job, node);
  return job;
}

TEST(SlowNodes, AMovePaysIfItSavesMoreThanTwiceItsCost) {
  Job job = job_with_a_slow_node();
  const auto pays = [&](int64_t step, int seconds_to_start) {
    return estimate_move(job, job.slow_nodes, step, Duration::zero(),
                         std::chrono::seconds(seconds_to_start))
        .pays();
  };
  EXPECT_TRUE(pays(0, 100));  // saves 3000 s
  EXPECT_FALSE(pays(0, 1500));
  EXPECT_FALSE(pays(9'500, 100));  // saves 150 s
  EXPECT_FALSE(pays(9'900, 0));    // a start takes at least 30 s
  EXPECT_FALSE(pays(20'000, 0));
  job.ranks[1].checkpoints.seconds = 1500;
  EXPECT_FALSE(pays(0, 100));
}

TEST(SlowNodes, AProgramIsHalfDone) {
  Job job = job_with_a_slow_node();
  job.spec.steps = 0;
  const MoveEstimate estimate =
      estimate_move(job, job.slow_nodes, 500, std::chrono::seconds(1300), std::chrono::seconds(50));
  EXPECT_EQ(estimate.gain, std::chrono::seconds(300));
  EXPECT_EQ(estimate.cost, std::chrono::seconds(50));
  EXPECT_TRUE(estimate.pays());
}

// Without the slowest node, the others still wait for the next one.
TEST(SlowNodes, TheLeastSlowOfSeveralNodesDeterminesTheGain) {
  Job job = job_with_a_slow_node();
  SlowNode other = job.slow_nodes[0];
  other.excess_seconds = 0.1;
  add_slow_node(job, other);
  EXPECT_EQ(estimate_move(job, job.slow_nodes, 0, Duration::zero(), Duration::zero()).gain,
            std::chrono::seconds(1000));
}

TEST(SlowNodes, AreAvoidedForADay) {
  const Job job = job_with_a_slow_node();
  EXPECT_EQ(slow_nodes_to_avoid(job, 2 * kHourOfNs), std::set{WorkerName("node2")});
  EXPECT_TRUE(slow_nodes_to_avoid(job, 26 * kHourOfNs).empty());
  EXPECT_EQ(why_stays(job, {}, 2 * kHourOfNs), "");
}

TEST(SlowNodes, AMoveInVainIsNotRepeated) {
  Job job = job_with_a_slow_node();
  EXPECT_EQ(measure_move(job, job.slow_nodes[0], 1.28),
            "without node2, a step takes 1.28 s, and took 1.3 s before (-2%): the node was not the "
            "cause, and the job leaves no node for 24 h");
  EXPECT_TRUE(job.slow_nodes[0].was_in_vain);
  EXPECT_TRUE(slow_nodes_to_avoid(job, 2 * kHourOfNs).empty());
  EXPECT_NE(why_stays(job, {}, 2 * kHourOfNs), "");
  EXPECT_EQ(why_stays(job, {}, 26 * kHourOfNs), "");
}

TEST(SlowNodes, FurtherMovesAreBounded) {
  Job job = job_with_a_slow_node();
  EXPECT_EQ(measure_move(job, job.slow_nodes[0], 1),
            "without node2, a step takes 1 s, and took 1.3 s before (-23%)");
  EXPECT_EQ(find_slow_node(job, WorkerName("node2")), nullptr);
  EXPECT_EQ(why_stays(job, {}, 2 * kHourOfNs), "");
  for (size_t i = 1; i < kSlowMovesMax; ++i) {
    SlowNode node = job.slow_nodes[0];
    node.worker = WorkerName("node" + std::to_string(10 + i));
    add_slow_node(job, node);
  }
  EXPECT_NE(why_stays(job, {}, 2 * kHourOfNs), "");
  EXPECT_EQ(why_stays(job, {}, 26 * kHourOfNs), "");
}

TEST(SlowNodes, AJobThatIsPlacedOnTheNodeAgainStaysThere) {
  const Job job = job_with_a_slow_node();
  EXPECT_NE(why_stays(job, job.slow_nodes, 2 * kHourOfNs), "");
  EXPECT_EQ(why_stays(job, job.slow_nodes, 26 * kHourOfNs), "");
}

TEST(SlowNodes, ReportedNodesAreUsedAsOthers) {
  Job job = job_with_a_slow_node();
  job.slow_nodes[0].is_only_reported = true;
  EXPECT_TRUE(slow_nodes_to_avoid(job, 2 * kHourOfNs).empty());
}

TEST(SlowNodes, OtherJobsAreNotComparable) {
  const Job measured = job_with_a_slow_node();
  for (const auto& change : std::vector<std::function<void(Job&)>>{
           [](Job& job) { job.placement.pop_back(); }, [](Job& job) { ++job.revision; },
           [](Job& job) { job.slow_nodes[0].step_seconds = 0; }}) {
    Job job = measured;
    change(job);
    EXPECT_EQ(measure_move(job, job.slow_nodes[0], 2.6),
              "the job runs without node2; its steps are not comparable with the earlier ones");
    EXPECT_FALSE(job.slow_nodes[0].was_in_vain);
  }
}

// A node that is measured in vain keeps the job where it is, also after it was slow again.
TEST(SlowNodes, TheRecordIsBounded) {
  Job job = job_with_a_slow_node();
  measure_move(job, job.slow_nodes[0], 1.3);
  for (size_t i = 0; has_room_for_slow_node(job); ++i) {
    if (i == 0) {
      EXPECT_NE(why_stays(job, {}, 2 * kHourOfNs), "");
    }
    SlowNode node = job_with_a_slow_node().slow_nodes[0];
    node.worker = WorkerName("node" + std::to_string(2 + i));
    add_slow_node(job, node);
  }
  EXPECT_EQ(job.slow_nodes.size(), kSlowNodesKeptMax);
  forget_slow_node(job, WorkerName("node5"));
  EXPECT_EQ(job.slow_nodes.size(), kSlowNodesKeptMax - 1);
  EXPECT_TRUE(has_room_for_slow_node(job));
}

TEST(SlowNodes, OnlyAPlannedEndOnTheNodeHasLeftIt) {
  Job job = job_with_a_slow_node();
  EXPECT_FALSE(has_left_slow_node(job));
  Fault& fault = job.faults.emplace_back();
  fault.worker = WorkerName("node2");
  EXPECT_FALSE(has_left_slow_node(job));
  fault.is_planned = true;
  EXPECT_TRUE(has_left_slow_node(job));
  fault.worker = WorkerName("node1");
  EXPECT_FALSE(has_left_slow_node(job));
}

}  // namespace
}  // namespace muster::coordinator
