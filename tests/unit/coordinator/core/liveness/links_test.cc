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

  std::optional<CutLink> find() {
    for (const char* name : {"a", "b", "c", "d"}) fleet.at(WorkerName(name)).last_message = now;
    return find_cut_link({job, ranks, *hang, false}, links, fleet, now);
  }

  CoreOptions options;
  Instant now = instant_from_ns(1'000'000'000'000);
  Fleet fleet;
  Job job;
  RanksByWorker ranks;
  std::optional<HangDetector> hang;
  StalledLinks links;
};

TEST_F(LinksTest, NamesThePairTheLinkAndTheTime) {
  EXPECT_FALSE(find());
  links.observe(Rank(1), {{"10.0.0.3", 28001, false}}, now);
  now += milliseconds(4200);
  links.observe(Rank(1), {{"10.0.0.3", 28002, false}}, now);
  const auto cut = find();
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->node, WorkerName("b"));
  EXPECT_EQ(cut->peer, WorkerName("c"));
  EXPECT_EQ(cut->sentence,
            "nodes b and c cannot reach each other: rank 1 on b sends to 10.0.0.3:28002, and has "
            "got no answer for 4.2 s");
  EXPECT_EQ(cut_link_due(*cut, true, false), cut->since + kLinkConfirm);
  EXPECT_EQ(cut_link_due(*cut, false, false), cut->since + kLinkWait);
  links.observe(Rank(1), {{"10.0.0.3", 4711, true}}, now);
  EXPECT_NE(find()->sentence.find("tries to connect to 10.0.0.3:4711"), std::string::npos);
  EXPECT_EQ(cut_link_due(*find(), true, true),
            cut->since + kSilentTimes * (kLinkConfirm + kConnectWait));
  links.observe(Rank(1), {}, now);
  EXPECT_FALSE(find()) << "the other node answers again";
}

TEST_F(LinksTest, IgnoresOtherHostsAndAddressesOfSeveralNodes) {
  links.observe(Rank(0), {{"10.0.0.9", 443, false}, {"172.17.0.1", 80, true}}, now);
  links.observe(Rank(2), {{"10.0.0.3", 80, false}}, now);
  EXPECT_FALSE(find()) << "a service, a bridge and the rank's own node";
  links.observe(Rank(0), {{"d.local", 80, true}}, now);
  EXPECT_TRUE(find());
}

TEST_F(LinksTest, NamesTheNodeThatIsCommonToSeveralPairs) {
  links.observe(Rank(0), {{"10.0.0.2", 80, false}}, now);
  links.observe(Rank(1), {{"10.0.0.3", 80, false}, {"10.0.0.4", 80, false}}, now);
  const auto cut = find();
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->node, WorkerName("b"));
  EXPECT_EQ(cut->peer, WorkerName());
  EXPECT_NE(cut->sentence.find("node b and its peers a, c, d cannot reach each other"),
            std::string::npos)
      << cut->sentence;
  EXPECT_EQ(fault_of_cut_link(job, *cut, 0).kind, IncidentKind::kWorkerLost);
  links.observe(Rank(1), {}, now);
  links.observe(Rank(3), {{"10.0.0.3", 80, false}}, now);
  EXPECT_EQ(find()->peer, WorkerName("b")) << "two pairs without a common node: the first one";
}

TEST_F(LinksTest, AJobThatProgressesNeedsNoStalledLink) {
  links.observe(Rank(0), {{"10.0.0.2", 80, false}}, now);
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

TEST_F(LinksTest, ASilentWorkerIsNoMatterOfALinkUntilItsPeersMissIt) {
  links.observe(Rank(0), {{"10.0.0.2", 80, false}}, now);
  now += seconds(3);
  for (const char* name : {"a", "c", "d"}) fleet.at(WorkerName(name)).last_message = now;
  const ReachView view{job, ranks, *hang, false};
  EXPECT_FALSE(find_cut_link(view, links, fleet, now));
  EXPECT_EQ(confirmed_by_links(view, links, fleet, seconds(2), now),
            std::vector<WorkerName>{WorkerName("b")});
  EXPECT_TRUE(confirmed_by_links(view, links, fleet, seconds(4), now).empty());
  fleet.at(WorkerName("a")).last_message = now - seconds(3);
  EXPECT_TRUE(confirmed_by_links(view, links, fleet, seconds(2), now).empty())
      << "the report of a silent worker is old";
}

TEST_F(LinksTest, TheErrorOfARankMayNameTheOtherNode) {
  const auto named = [&](std::string detail, bool of_program = true) {
    job.exits = {{Rank(1), 1, 0, 5, std::move(detail), ExitCause::kUnknown, of_program}};
    Fault fault;
    fault.rank = Rank(1);
    fault.worker = WorkerName("b");
    fault.message = "rank 1 failed";
    name_cut_link(job, ranks, fleet, now, fault);
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
  EXPECT_EQ(named("Connection timed out: 10.0.0.2").peer, WorkerName()) << "its own node";
  EXPECT_EQ(named("Connection timed out: 10.0.0.3", false).peer, WorkerName())
      << "an exit code of the trainer that names another cause";
}

}  // namespace
}  // namespace muster::coordinator
