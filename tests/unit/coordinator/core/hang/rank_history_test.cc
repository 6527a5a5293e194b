#include "coordinator/core/hang/rank_history.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

// A job of two ranks on each node, with the times of a step of each rank.
class RememberedJob {
 public:
  explicit RememberedJob(int32_t ranks)
      : compute(static_cast<size_t>(ranks), 0.6),
        data(static_cast<size_t>(ranks), 0.01),
        stragglers(static_cast<size_t>(ranks)),
        history(static_cast<size_t>(ranks)),
        pages_(static_cast<size_t>(ranks)) {
    for (int32_t rank = 0; rank < ranks; ++rank) {
      RankPlacement& place = job.placement.emplace_back();
      place.rank = Rank(rank);
      place.worker = WorkerName("node" + std::to_string(rank / 2 + 1));
    }
  }

  // Completes as many steps as an evaluation needs.
  void run() {
    for (int i = 0; i < 15; ++i) {
      double longest = 0;
      for (size_t r = 0; r < pages_.size(); ++r) longest = std::max(longest, compute[r] + data[r]);
      for (size_t r = 0; r < pages_.size(); ++r) {
        Stragglers::Sample& page = pages_[r];
        ++page.steps;
        page.seconds += longest + network;
        if (reports_waits) {
          page.data_wait += data[r];
          page.collective_wait += longest + network - compute[r] - data[r];
        }
        stragglers.observe(r, page);
      }
      if (stragglers.sample_is_due()) stragglers.evaluate(Instant{});
    }
  }
  RankHistory::Explanation explain(double excess) const {
    return history.explain(
        stragglers, job,
        {.seconds = 1 + excess, .reference_seconds = 1, .part_is_known = rank_0_reports_waits});
  }
  // Runs, and remembers the times as the history does.
  void remember(int windows = 12) {
    for (int i = 0; i < windows; ++i) {
      run();
      history.remember(stragglers);
    }
  }

  std::vector<double> compute, data;
  double network = 0.1;
  bool reports_waits = true;
  bool rank_0_reports_waits = true;  // for the other ranks
  Job job;
  Stragglers stragglers;
  RankHistory history;

 private:
  std::vector<Stragglers::Sample> pages_;
};

TEST(RankHistory, NamesTheRankThatComputesLonger) {
  RememberedJob job(8);
  job.compute[6] = 0.7;  // it always did
  job.remember();
  job.compute[5] = 1.0;
  job.run();
  const RankHistory::Explanation found = job.explain(0.3);
  EXPECT_EQ(found.clause, "");
  ASSERT_EQ(found.suspects.size(), 1U);
  EXPECT_EQ(found.suspects[0].rank, Rank(5));
  EXPECT_EQ(found.suspects[0].worker, WorkerName("node3"));
  EXPECT_EQ(found.suspects[0].why, "computes 1 s a step, and computed 0.6 s before");
}

TEST(RankHistory, NamesTheRanksThatWaitForData) {
  RememberedJob job(8);
  job.remember();
  job.data[2] = 0.5;
  job.data[4] = 0.4;
  job.run();
  const RankHistory::Explanation found = job.explain(0.49);
  ASSERT_EQ(found.suspects.size(), 2U);
  EXPECT_EQ(found.suspects[0].rank, Rank(2));
  EXPECT_EQ(found.suspects[0].why, "waits 0.5 s a step for its data, and waited 0.01 s before");
  EXPECT_EQ(found.suspects[1].rank, Rank(4));
}

TEST(RankHistory, NamesTheNodeOfSlowRanks) {
  for (const int32_t ranks : {4, 16}) {
    RememberedJob job(ranks);
    job.remember();
    job.compute[2] = job.compute[3] = 1.2;
    job.run();
    const RankHistory::Explanation found = job.explain(0.6);
    ASSERT_EQ(found.suspects.size(), 1U) << ranks;
    EXPECT_LT(found.suspects[0].rank.value(), 0);
    EXPECT_EQ(found.suspects[0].worker, WorkerName("node2"));
    EXPECT_EQ(found.suspects[0].why,
              "computes 1.2 s a step on 2 of its 2 ranks, and computed 0.6 s before");
  }
}

TEST(RankHistory, BlamesNoRankIfAllAreSlowerOrNoneIs) {
  RememberedJob all(8);
  all.remember();
  std::ranges::fill(all.compute, 0.9);
  all.run();
  EXPECT_TRUE(all.explain(0.3).suspects.empty());
  EXPECT_EQ(all.explain(0.3).clause,
            "8 of 8 ranks take longer: a typical one computes 0.9 s a step, and computed 0.6 s "
            "before");

  RememberedJob none(8);
  none.remember();
  none.network = 0.5;
  none.run();
  EXPECT_TRUE(none.explain(0.4).suspects.empty());
  EXPECT_EQ(none.explain(0.4).clause,
            "no rank computes longer or waits longer for its data than before");
}

TEST(RankHistory, OneOddWindowIsNotTypical) {
  RememberedJob job(4);
  job.remember(5);
  job.compute[1] = 3;
  job.remember(2);
  job.compute[1] = 0.6;
  job.remember(5);
  job.compute[1] = 0.9;
  job.run();
  ASSERT_EQ(job.explain(0.3).suspects.size(), 1U);
  EXPECT_EQ(job.explain(0.3).suspects[0].why, "computes 0.9 s a step, and computed 0.6 s before");
}

TEST(RankHistory, RanksWithoutWaitsAndSamplesExplainNothing) {
  RememberedJob job(4);
  job.reports_waits = false;
  job.remember();
  std::ranges::fill(job.compute, 0.9);
  job.run();
  EXPECT_TRUE(job.explain(0.3).suspects.empty());
  EXPECT_EQ(job.explain(0.3).clause, "");
}

// Its own time would contain its waits for the others.
TEST(RankHistory, RanksThatReportOnlyWaitsForDataAreNotBlamed) {
  RememberedJob job(4);
  job.remember();
  std::ranges::fill(job.compute, 0.9);
  job.run();
  EXPECT_NE(job.explain(0.3).clause, "");
  job.rank_0_reports_waits = false;
  EXPECT_EQ(job.explain(0.3).clause, "");
  EXPECT_TRUE(job.explain(0.3).suspects.empty());
  EXPECT_TRUE(job.explain(0.3).is_known);
}

}  // namespace
}  // namespace muster::coordinator
