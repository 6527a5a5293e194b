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

}  // namespace
}  // namespace muster::coordinator
