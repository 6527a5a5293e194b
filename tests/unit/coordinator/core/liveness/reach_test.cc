#include "coordinator/core/liveness/reach.h"

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

using std::chrono::milliseconds;

class ReachTest : public testing::Test {
 protected:
  ReachTest() : fleet(options) {
    for (const char* name : {"a", "b"}) {
      WorkerRegistered event;
      event.worker = WorkerName(name);
      event.host = "h";
      event.slots = 1;
      fleet.add(event, time.now);
    }
  }

  CoreOptions options;
  CoreTime time{instant_from_ns(1'000'000'000'000), 5};
  Fleet fleet;
  IncidentBook incidents;
  Reach reach;
  std::optional<IncidentId> incident;
};

TEST_F(ReachTest, ALossMayBeConfirmedWhenTheLastSilenceIsLongEnough) {
  EXPECT_EQ(confirmable_at(reach, fleet, options.unreachable_confirm), Instant{});
  for (const char* name : {"a", "b", "unknown"}) reach.add(WorkerName(name), "", 5);
  fleet.at(WorkerName("b")).last_message += milliseconds(300);
  EXPECT_EQ(confirmable_at(reach, fleet, options.unreachable_confirm),
            time.now + milliseconds(300) + options.unreachable_confirm);
  fleet.at(WorkerName("a")).longest_pause = std::chrono::seconds(3);
  EXPECT_EQ(confirmable_at(reach, fleet, options.unreachable_confirm),
            time.now + std::chrono::seconds(6))
      << "a worker that is often late gets twice its longest pause";
}

TEST_F(ReachTest, ASilenceBeforeAnIncidentIsKeptForIt) {
  time.now += milliseconds(1200);
  const std::string text =
      mark_unreachable(incidents, reach, incident, fleet.at(WorkerName("b")), time);
  EXPECT_EQ(text, "worker b (h) cannot be reached: it has sent nothing for 1.2 s");
  ASSERT_EQ(reach.moments.size(), 1U);
  EXPECT_EQ(reach.moments[0].text, text);
  EXPECT_EQ(mark_reachable(incidents, reach, incident, WorkerName("b"), "is reachable again", 5),
            "worker b is reachable again");
  EXPECT_TRUE(reach.unreachable.empty());
  EXPECT_TRUE(reach.moments.empty());
}

TEST_F(ReachTest, TheIncidentIsClosedWhenTheLastWorkerIsBack) {
  incident = incidents.open(Incident{});
  incidents.await(*incident);
  for (const char* name : {"a", "b"})
    (void)mark_unreachable(incidents, reach, incident, fleet.at(WorkerName(name)), time);
  EXPECT_TRUE(reach.moments.empty()) << "the silences are in the incident";
  const IncidentId id = *incident;
  EXPECT_EQ(incidents.find(id)->moments.size(), 2U);
  (void)mark_reachable(incidents, reach, incident, WorkerName("a"), "is reachable again", 5);
  EXPECT_TRUE(incidents.find(id)->open);
  (void)mark_reachable(incidents, reach, incident, WorkerName("b"), "is reachable again", 5);
  EXPECT_FALSE(incidents.find(id)->open);
  EXPECT_EQ(incidents.find(id)->action, "none: its ranks ran on");
  EXPECT_FALSE(incident);
}

// A job with one rank on each worker, whose ranks make no progress.
class ReachOfJobTest : public ReachTest {
 protected:
  using Names = std::vector<WorkerName>;

  ReachOfJobTest() : hang({}, 2, time.now) {
    for (const auto& [name, worker] : fleet.all()) {
      const Rank rank(static_cast<int32_t>(job.placement.size()));
      job.placement.push_back({rank, name, 0, worker.incarnation});
      job.ranks.emplace_back();
      ranks[name] = {rank};
    }
  }

  ReachChanges check() const {
    return check_reach({job, ranks, hang}, reach, fleet, options, options.unreachable_confirm,
                       time.now);
  }
  Names back() const {
    Names names;
    for (const auto& [name, how] : check().back) {
      EXPECT_EQ(how, "is reachable again");
      names.push_back(name);
    }
    return names;
  }
  Names no_longer() const {
    Names names;
    for (const auto& [name, how] :
         no_longer_unreachable({job, ranks, hang}, reach, fleet, time.now))
      names.push_back(name);
    return names;
  }

  const WorkerName a{"a"}, b{"b"};
  Job job;
  RanksByWorker ranks;
  HangDetector hang;
};

TEST_F(ReachOfJobTest, AWorkerThatIsSilentStaysUnreachableWhileTheCoordinatorIsBehind) {
  time.now += std::chrono::seconds(2);
  fleet.at(b).last_message = time.now;
  ASSERT_EQ(check().gone, Names{a});
  reach.add(a, "", 5);
  fleet.judge_no_silence(time.now);
  EXPECT_EQ(back(), Names{});
  EXPECT_EQ(no_longer(), Names{}) << "it has sent nothing since";
  EXPECT_EQ(check().next_check, fleet.reachable_until());

  fleet.at(a).last_message = time.now;
  EXPECT_EQ(back(), Names{a});
  EXPECT_EQ(no_longer(), Names{a});
}

TEST_F(ReachOfJobTest, NoFurtherWorkerIsUnreachableWhileTheCoordinatorIsBehind) {
  time.now += std::chrono::seconds(2);
  reach.add(a, "", 5);
  fleet.judge_no_silence(time.now);
  EXPECT_EQ(check().gone, Names{});
  time.now = fleet.reachable_until();
  EXPECT_EQ(check().gone, Names{b});
  EXPECT_EQ(back(), Names{});
}

// Both workers are silent from the start on.
class ReachInAnOutageTest : public ReachOfJobTest {
 protected:
  static constexpr Duration kStep = std::chrono::seconds(1);

  ReachInAnOutageTest() {
    reach.add(a, "", 5);
    pass(std::chrono::seconds(3));
    EXPECT_TRUE(fleet.is_cut_off());
  }

  void pass(Duration by) {
    time.now += by;
    fleet.watch_outage(time.now);
  }
  // The other rank completes a step at this time.
  void complete_step(int64_t step) {
    HangDetector::Sample sample;
    sample.phase = Phase::kStep;
    sample.phase_start = sample.last_progress = time.now;
    sample.step = step;
    sample.step_seconds = to_seconds(kStep);
    sample.steps = static_cast<uint64_t>(step);
    sample.seconds = to_seconds(step * kStep);
    for (size_t rank = 0; rank < 2; ++rank) hang.observe(rank, sample, time.now);
  }
  ReachView view(bool peer_lost = false) const { return {job, ranks, hang, peer_lost}; }
};

TEST_F(ReachInAnOutageTest, NothingConfirmsALossBeforeTheLeaseEnds) {
  const Instant end = fleet.lease_end(fleet.at(a));
  EXPECT_EQ(end, fleet.at(a).last_message + kLeasesOfAll * fleet.lease());
  EXPECT_EQ(confirmable_at(reach, fleet, options.unreachable_confirm), end);
  EXPECT_EQ(lost_at({a}, time.now, fleet, options.unreachable_confirm), end);
  fleet.at(b).disconnected_at = time.now;
  pass(std::chrono::seconds(5));
  EXPECT_EQ(confirmed_by_peers(view(true), fleet, options, time.now), Names{});
  // One worker is back, and the other may reconnect later.
  ASSERT_GT(fleet.end_outage(b, time.now), Duration::zero());
  fleet.at(b).disconnected_at.reset();
  for (const Names& lost : {Names{}, Names{a}}) {
    time.now += std::chrono::seconds(5);
    fleet.at(b).last_message = time.now;
    fleet.watch_outage(time.now);
    EXPECT_EQ(confirmed_by_peers(view(true), fleet, options, time.now), lost);
  }
}

TEST_F(ReachInAnOutageTest, OnlyACancelledJobWaitsNoLonger) {
  const Instant killed_at = time.now + std::chrono::seconds(4);
  pass(std::chrono::seconds(4) + fleet.lease() - milliseconds(1));
  job.cancel_requested = true;
  EXPECT_EQ(not_awaited(view(), killed_at, fleet, time.now), Names{});
  pass(milliseconds(1));
  EXPECT_EQ(not_awaited(view(), killed_at, fleet, time.now), (Names{a, b}));
  job.cancel_requested = false;
  EXPECT_EQ(not_awaited(view(), killed_at, fleet, time.now), Names{});
}

TEST_F(ReachInAnOutageTest, StepsThatBeganAfterTheSilenceRenewALease) {
  for (int64_t step = 1; step < 5; ++step) {
    complete_step(step);
    time.now += kStep;
  }
  fleet.at(a).last_message = time.now;
  time.now += kStep / 2;
  complete_step(5);
  EXPECT_LT(run_until(view(), fleet.at(a), fleet), fleet.at(a).last_message + fleet.lease())
      << "the rank may have contributed to this step";
  time.now += kStep;
  complete_step(6);
  EXPECT_EQ(run_until(view(), fleet.at(a), fleet), time.now + fleet.lease());
  time.now += std::chrono::minutes(20);
  complete_step(7);
  EXPECT_EQ(run_until(view(), fleet.at(a), fleet), time.now + fleet.lease());
  job.spec.command = {"sweep.py"};
  EXPECT_LT(run_until(view(), fleet.at(a), fleet), time.now)
      << "the ranks of a program may be independent";
  ranks.erase(b);
  job.spec.command.clear();
  EXPECT_EQ(run_until(view(), fleet.at(a), fleet), Instant{}) << "no other rank shows anything";
}

}  // namespace
}  // namespace muster::coordinator
