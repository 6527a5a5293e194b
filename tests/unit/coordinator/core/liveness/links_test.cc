#include "coordinator/core/liveness/links.h"

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A job with one rank on each of the nodes a, b, c and d, whose addresses are 10.0.0.1 to 10.0.0.4.
class LinksTest : public testing::Test {
 protected:
  LinksTest() : fleet(options) {
    int32_t rank = 0;
    for (const char* name : {"a", "b", "c", "d"}) {
      WorkerRegistered event;
      event.worker = WorkerName(name);
      event.slots = 1;
      event.rendezvous_address = std::string(name) + ".local:4711";
      event.addresses = {"10.0.0." + std::to_string(rank + 1), "172.17.0.1"};
      fleet.add(event, now);
      job.placement.push_back({Rank(rank), event.worker, 0, {}});
      ranks[event.worker].push_back(Rank(rank));
      ++rank;
    }
    job.ranks.resize(4);
    for (RankState& state : job.ranks) state.life = RankState::Life::kUp;
    hang.emplace(options.hang, 4, now);
  }

  ReachView view() const { return {job, ranks, *hang, false}; }

  void observe(Rank rank, const std::vector<StalledLink>& stalled) {
    links.observe(view(), rank, stalled, fleet, now);
  }

  std::optional<CutLink> find() {
    for (const char* name : {"a", "b", "c", "d"}) fleet.at(WorkerName(name)).last_message = now;
    return find_cut_link(view(), links, fleet, now);
  }

  Instant due(bool has_other_node) {
    const auto cut = find();
    return cut ? cut_link_due(*cut, *hang, has_other_node) : Instant{};
  }

  // All ranks complete `count` steps.
  void take_steps(Duration time, int count) {
    for (int i = 0; i < count; ++i) {
      now += time;
      ++steps;
      total_seconds += to_seconds(time);
      for (size_t rank = 0; rank < 4; ++rank)
        hang->observe(rank,
                      {.phase = Phase::kStep,
                       .phase_start = now,
                       .last_progress = now,
                       .step = static_cast<int64_t>(steps),
                       .step_seconds = to_seconds(time),
                       .steps = steps,
                       .seconds = total_seconds},
                      now);
    }
  }

  CoreOptions options;
  Instant now = instant_from_ns(1'000'000'000'000);
  Fleet fleet;
  Job job;
  RanksByWorker ranks;
  std::optional<HangDetector> hang;
  StalledLinks links;
  uint64_t steps = 0;
  double total_seconds = 0;
};

TEST_F(LinksTest, NamesThePairTheLinkAndTheTime) {
  EXPECT_FALSE(find());
  observe(Rank(1), {{"10.0.0.3", 28001, false, 3}});
  now += milliseconds(4200);
  observe(Rank(1), {{"10.0.0.3", 28002, false, 3}});
  const auto cut = find();
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->node, WorkerName("b"));
  EXPECT_EQ(cut->peer, WorkerName("c"));
  EXPECT_EQ(cut->sentence,
            "nodes b and c cannot reach each other: rank 1 on b sends to 10.0.0.3:28002, and has "
            "got no answer for 4.2 s");
  observe(Rank(1), {{"10.0.0.3", 4711, true, 2}});
  EXPECT_NE(find()->sentence.find("tries to connect to 10.0.0.3:4711"), std::string::npos);
  observe(Rank(1), {});
  EXPECT_FALSE(find()) << "the other node answers again";
}

TEST_F(LinksTest, OnlyARepetitionAfterTheDueTimeConfirmsALink) {
  take_steps(milliseconds(500), 8);
  observe(Rank(1), {{"10.0.0.3", 80, false, 3}});
  now += milliseconds(1500);
  observe(Rank(1), {{"10.0.0.3", 80, false, 4}});
  now += seconds(60);
  EXPECT_EQ(due(true), StalledLinks::kNever) << "the link may be back since";
  observe(Rank(1), {{"10.0.0.3", 80, false, 5}});
  EXPECT_EQ(due(true), now + kAnswerTime);
  links.excuse(seconds(1));
  EXPECT_EQ(due(true), StalledLinks::kNever) << "during an outage, the answer may not be reported";
  now += kLinkConfirm;
  observe(Rank(1), {{"10.0.0.3", 80, false, 6}});
  EXPECT_EQ(due(true), now + kAnswerTime);
  observe(Rank(1), {{"10.0.0.3", 80, false, 3}});
  EXPECT_EQ(due(true), StalledLinks::kNever) << "it was answered in between";
}

TEST_F(LinksTest, ALinkEndsNoAttemptBeforeTheJobIsOverdue) {
  // Returns after which time, in tenths of a second, a repetition confirms the link.
  const auto confirms_after = [&](bool has_other_node, bool is_connecting) {
    const Instant began = now;
    observe(Rank(1), {});
    observe(Rank(1), {{"10.0.0.3", 80, is_connecting, 0}});
    for (int32_t count = 1; count < 2'000; ++count) {
      now += milliseconds(100);
      observe(Rank(1), {{"10.0.0.3", 80, is_connecting, count}});
      if (due(has_other_node) != StalledLinks::kNever) return now - began;
    }
    return Duration::zero();
  };
  EXPECT_EQ(confirms_after(true, false), kLinkWait) << "no times of steps are known";
  take_steps(milliseconds(400), 8);
  EXPECT_EQ(confirms_after(true, false), kLinkConfirm);
  take_steps(milliseconds(400), 1);
  EXPECT_EQ(confirms_after(false, false), kLinkWait);
  hang.emplace(options.hang, 4, now);
  steps = 0;
  total_seconds = 0;
  take_steps(seconds(20), 8);
  EXPECT_EQ(confirms_after(true, false), seconds(25));
  hang.emplace(options.hang, 4, now, HangDetector::PhaseReports::kLaterOrNever);
  EXPECT_EQ(confirms_after(true, true), kSilentConnectTimes * (kLinkWait + kConnectWait));
}

TEST_F(LinksTest, TheWaitBeginsWithTheLastProgressOfAnyRank) {
  observe(Rank(1), {{"10.0.0.3", 80, false, 3}});
  now += seconds(14);
  hang->observe(0, {.phase = Phase::kInit, .phase_start = now - seconds(14), .last_progress = now},
                now);
  now += seconds(14);
  observe(Rank(1), {{"10.0.0.3", 80, false, 4}});
  EXPECT_EQ(due(true), StalledLinks::kNever);
  now += seconds(1);
  observe(Rank(1), {{"10.0.0.3", 80, false, 5}});
  EXPECT_EQ(due(true), now + kAnswerTime);
}

TEST_F(LinksTest, IgnoresOtherHostsAndAddressesOfSeveralNodes) {
  observe(Rank(0), {{"10.0.0.9", 443, false}, {"172.17.0.1", 80, true}});
  observe(Rank(2), {{"10.0.0.3", 80, false}});
  EXPECT_FALSE(find()) << "a service, a bridge and the rank's own node";
  observe(Rank(0), {{"d.local", 80, true}});
  EXPECT_TRUE(find());
}

TEST_F(LinksTest, NamesTheNodeThatIsCommonToSeveralPairs) {
  observe(Rank(0), {{"10.0.0.2", 80, false}});
  observe(Rank(1), {{"10.0.0.3", 80, false}, {"10.0.0.4", 80, false}});
  const auto cut = find();
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->node, WorkerName("b"));
  EXPECT_EQ(cut->peer, WorkerName());
  EXPECT_NE(cut->sentence.find("node b and its peers a, c, d cannot reach each other"),
            std::string::npos)
      << cut->sentence;
  EXPECT_EQ(fault_of_cut_link(job, *cut, 0).kind, IncidentKind::kWorkerLost);
  observe(Rank(1), {});
  observe(Rank(3), {{"10.0.0.3", 80, false}});
  EXPECT_EQ(find()->peer, WorkerName("b")) << "two pairs without a common node: the first one";
}

TEST_F(LinksTest, AJobThatProgressesNeedsNoStalledLink) {
  observe(Rank(0), {{"10.0.0.2", 80, false}});
  ASSERT_TRUE(find());
  now += seconds(1);
  hang->observe(0,
                {.phase = Phase::kStep,
                 .phase_start = now,
                 .last_progress = now,
                 .step = 1,
                 .steps = 1,
                 .seconds = 1},
                now);
  EXPECT_FALSE(find());
}

TEST_F(LinksTest, AttemptsToConnectNeverBlameANode) {
  observe(Rank(0), {{"10.0.0.2", 80, true, 2}});
  observe(Rank(2), {{"10.0.0.2", 80, true, 2}});
  observe(Rank(3), {{"10.0.0.2", 80, true, 2}});
  ASSERT_TRUE(find());
  EXPECT_EQ(find()->peer, WorkerName("b")) << "the queue of its listener may be full";
  observe(Rank(3), {{"10.0.0.2", 80, false, 3}});
  EXPECT_EQ(find()->peer, WorkerName("d")) << "one pair with an open connection";
  EXPECT_EQ(find()->node, WorkerName("b"));
}

TEST_F(LinksTest, BothNodesOfAPairMustReport) {
  observe(Rank(0), {{"10.0.0.2", 80, false, 3}});
  ASSERT_TRUE(find());
  Worker& b = fleet.at(WorkerName("b"));
  b.slots = 0;
  EXPECT_FALSE(find());
  b.slots = 1;
  b.connected = false;
  EXPECT_FALSE(find());
  b.connected = true;
  b.renewals = 1;
  EXPECT_FALSE(find()) << "it was silent since an outage";
  b.renewals = 0;
  EXPECT_TRUE(find());
  b.last_message -= fleet.silence_max();
  EXPECT_FALSE(find_cut_link(view(), links, fleet, now));
}

TEST_F(LinksTest, LinksConfirmALossOnlyWhileNoStepsAreCompleted) {
  take_steps(milliseconds(400), 8);
  fleet.at(WorkerName("b")).last_message = now;
  Reach reach;
  const auto confirmed = [&](Duration after) {
    return confirmed_by_links(view(), reach, links, fleet, after, now);
  };
  observe(Rank(0), {{"10.0.0.2", 80, false, 3}});
  now += seconds(2);
  observe(Rank(0), {{"10.0.0.2", 80, false, 4}});
  now += seconds(2);
  for (const char* name : {"a", "c", "d"}) fleet.at(WorkerName(name)).last_message = now;
  EXPECT_TRUE(confirmed(seconds(2)).empty()) << "the job does not miss it";
  reach.unreachable = {WorkerName("b")};
  EXPECT_EQ(confirmed(seconds(2)), std::vector<WorkerName>{WorkerName("b")});
  EXPECT_TRUE(confirmed(seconds(3)).empty()) << "the node may be back since the repetition";
  links.excuse(Duration::zero());
  EXPECT_TRUE(confirmed(seconds(2)).empty()) << "the link may be back";
  observe(Rank(0), {{"10.0.0.2", 80, false, 5}});
  now += seconds(3);
  for (const char* name : {"a", "c", "d"}) fleet.at(WorkerName(name)).last_message = now;
  ASSERT_FALSE(confirmed(seconds(2)).empty());
  fleet.at(WorkerName("a")).last_message = now - seconds(3);
  EXPECT_TRUE(confirmed(seconds(2)).empty()) << "the report of a silent worker is old";
  fleet.at(WorkerName("a")).last_message = now;
  take_steps(milliseconds(400), 2);
  fleet.at(WorkerName("b")).last_message = now - seconds(6);
  EXPECT_TRUE(confirmed(seconds(2)).empty()) << "its ranks complete steps";
}

TEST_F(LinksTest, TheErrorOfARankMayNameTheOtherNode) {
  const auto named = [&](std::string detail, bool of_program = true) {
    job.exits = {{Rank(1), 1, 0, 5, std::move(detail), ExitCause::kUnknown, of_program}};
    Fault fault;
    fault.rank = Rank(1);
    fault.worker = WorkerName("b");
    fault.message = "rank 1 failed";
    name_cut_link(view(), links, fleet, now, fault);
    return fault;
  };
  const Fault fault =
      named("RuntimeError: [pair.cc:553] Read error [10.0.0.3]:28001: Connection timed out");
  EXPECT_EQ(fault.worker, WorkerName("b"));
  EXPECT_EQ(fault.peer, WorkerName("c"));
  EXPECT_EQ(fault.message, "nodes b and c cannot reach each other: rank 1 failed");
  EXPECT_EQ(named("NET/Socket: connect to 10.0.0.4<43521> failed : No route to host").peer,
            WorkerName("d"));
  EXPECT_EQ(named("Connection closed by peer [10.0.0.3]:28001").peer, WorkerName())
      << "the other process has ended";
  EXPECT_EQ(named("Connection timed out: 10.0.0.30").peer, WorkerName());
  fleet.at(WorkerName("d")).addresses = {"fd00::2"};
  links.forget_addresses();
  EXPECT_EQ(named("connect to [fd00::2]:80: Connection timed out").peer, WorkerName("d"));
  EXPECT_EQ(named("connect to fd00::2:1: Connection timed out").peer, WorkerName())
      << "another address";
  EXPECT_EQ(named("Connection timed out: 10.0.0.2").peer, WorkerName()) << "its own node";
  EXPECT_EQ(named("Connection timed out: 10.0.0.3", false).peer, WorkerName())
      << "an exit code of the trainer that names another cause";
}

}  // namespace
}  // namespace muster::coordinator
