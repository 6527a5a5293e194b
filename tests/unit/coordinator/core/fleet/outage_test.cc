#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "coordinator/core/fleet/fleet.h"

namespace muster::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class OutageTest : public testing::Test {
 protected:
  static WorkerName node(int i) { return WorkerName(absl::StrCat("n", i)); }
  static std::vector<WorkerName> nodes(std::vector<int> numbers) {
    std::vector<WorkerName> names;
    for (const int i : numbers) names.push_back(node(i));
    return names;
  }
  static WorkerRegistered registration(int i, uint64_t incarnation) {
    WorkerRegistered event;
    event.worker = node(i);
    event.incarnation = Incarnation(incarnation);
    event.slots = 1;
    return event;
  }

  void add(int count) {
    for (int i = 0; i < count; ++i) fleet_.add(registration(i, 1), now_);
  }
  // Returns the time without messages that the message has ended.
  Duration receive(int i) {
    const Duration outage = fleet_.end_outage(node(i), now_);
    EXPECT_NE(fleet_.receive(node(i), Incarnation(1), now_), nullptr);
    return outage;
  }
  bool accepts(const WorkerRegistered& event) const {
    return fleet_.check_registration(event, false, now_).ok();
  }
  void close_streams(const std::vector<int>& numbers) {
    for (const int i : numbers) {
      fleet_.at(node(i)).connected = false;
      fleet_.at(node(i)).disconnected_at = now_;
    }
  }
  // Lets time pass; `senders`: the workers that send messages. Returns the lost workers.
  std::vector<WorkerName> wait(Duration time, const std::vector<int>& senders = {}) {
    std::vector<WorkerName> lost;
    for (const Instant end = now_ + time; now_ < end;) {
      now_ += milliseconds(250);
      for (const int i : senders) EXPECT_EQ(receive(i), Duration::zero());
      fleet_.watch_outage(now_);
      for (const WorkerName& name : fleet_.take_expired(now_)) {
        fleet_.erase(name);
        lost.push_back(name);
      }
      EXPECT_GT(fleet_.next_deadline().value_or(Instant::max()), now_) << "a busy loop";
    }
    return lost;
  }

  Instant now_ = Instant(std::chrono::hours(1));
  CoreOptions options_;
  Fleet fleet_{options_};
};

TEST_F(OutageTest, LeasesAreLongWhileNoWorkerReportsAndStartAgainAfterwards) {
  add(4);
  EXPECT_TRUE(wait(seconds(599)).empty());
  EXPECT_TRUE(fleet_.is_cut_off());
  EXPECT_EQ(receive(2), seconds(599));
  EXPECT_FALSE(fleet_.is_cut_off());
  EXPECT_FALSE(fleet_.is_unreachable(fleet_.at(node(0)), now_));
  EXPECT_EQ(receive(3), Duration::zero());
  EXPECT_TRUE(wait(milliseconds(9'750), {2, 3}).empty());
  EXPECT_EQ(wait(milliseconds(250), {2, 3}), nodes({0, 1}));
}

TEST_F(OutageTest, EndsAfterSixtyLeasesIfNoWorkerOfSeveralReports) {
  add(2);
  EXPECT_TRUE(wait(milliseconds(599'750)).empty());
  EXPECT_EQ(wait(milliseconds(250)), nodes({0, 1}));
}

TEST_F(OutageTest, EndsAfterThreeLeasesForAFleetOfOneWorker) {
  add(1);
  EXPECT_TRUE(wait(milliseconds(29'750)).empty());
  EXPECT_TRUE(fleet_.is_cut_off());
  EXPECT_EQ(wait(milliseconds(250)), nodes({0}));
}

TEST_F(OutageTest, EndsAfterThreeLeasesIfOthersReport) {
  add(4);
  EXPECT_TRUE(wait(milliseconds(29'750), {0}).empty());
  EXPECT_FALSE(fleet_.is_cut_off());
  EXPECT_EQ(wait(milliseconds(250), {0}), nodes({1, 2, 3}));
}

TEST_F(OutageTest, OneThatReturnsRenewsTheLeasesOfTheOthers) {
  add(5);
  EXPECT_TRUE(wait(seconds(29), {0}).empty());
  EXPECT_EQ(receive(1), Duration::zero());
  EXPECT_TRUE(wait(seconds(29), {0, 1}).empty()) << "three of five are most of the workers";
  EXPECT_EQ(receive(2), Duration::zero());
  EXPECT_TRUE(wait(milliseconds(9'750), {0, 1, 2}).empty());
  EXPECT_EQ(wait(milliseconds(250), {0, 1, 2}), nodes({3, 4}));
}

// A worker that is silent now and then does not renew the leases of lost ones for ever.
TEST_F(OutageTest, RenewsLeasesWithinBounds) {
  add(4);
  int renewals = 0;
  std::vector<WorkerName> lost;
  while (lost.empty() && renewals < 2 * kPostponementsMax) {
    lost = wait(seconds(4), {0});
    if (lost.empty()) {
      EXPECT_EQ(receive(1), Duration::zero());
    }
    ++renewals;
  }
  EXPECT_EQ(lost, nodes({2, 3}));
  EXPECT_GT(renewals, kPostponementsMax);
}

TEST_F(OutageTest, ASecondOneIsRecognisedBeforeAllHaveReturned) {
  add(5);
  for (int outage = 0; outage < 3; ++outage) {
    EXPECT_TRUE(wait(seconds(60)).empty());
    EXPECT_TRUE(fleet_.is_cut_off());
    EXPECT_EQ(receive(1), seconds(60)) << outage;
    // Only two workers have returned.
    EXPECT_EQ(receive(2), Duration::zero());
    EXPECT_TRUE(wait(seconds(3), {1, 2}).empty());
  }
  // The same while others report: worker 0 is back, then three of the others are silent again.
  EXPECT_EQ(receive(0), Duration::zero());
  EXPECT_TRUE(wait(seconds(29), {0}).empty());
  EXPECT_EQ(receive(3), Duration::zero());
  EXPECT_TRUE(wait(seconds(2), {0, 3}).empty());
  EXPECT_TRUE(wait(seconds(27), {0}).empty());
}

TEST_F(OutageTest, IsNotTheSilenceOfHalfTheWorkers) {
  add(4);
  EXPECT_TRUE(wait(milliseconds(9'750), {2, 3}).empty());
  EXPECT_EQ(wait(milliseconds(250), {2, 3}), nodes({0, 1}));
}

// A killed worker closes its stream at once: its host has a network. A stream that breaks later is
// a part of the outage.
TEST_F(OutageTest, IsNotTheEndOfStreamsWhileOthersReport) {
  for (const bool is_killed : {true, false}) {
    add(4);
    if (!is_killed) {
      EXPECT_TRUE(wait(seconds(3), {3}).empty());
    }
    close_streams({0, 1, 2});
    EXPECT_EQ(wait(seconds(10), {3}).empty(), !is_killed);
    EXPECT_FALSE(fleet_.is_cut_off());
  }
}

// A proxy of the coordinator that fails closes all streams at once.
TEST_F(OutageTest, IsTheEndOfAllStreams) {
  add(4);
  close_streams({0, 1, 2, 3});
  EXPECT_TRUE(wait(seconds(60)).empty());
  EXPECT_TRUE(fleet_.is_cut_off());
  EXPECT_EQ(fleet_.end_outage(node(0), now_), seconds(60));
  fleet_.add(registration(0, 1), now_);
  fleet_.add(registration(3, 1), now_);
  EXPECT_EQ(fleet_.judged_from(fleet_.at(node(1))), now_ + fleet_.lease()) << "it may be late";
  EXPECT_TRUE(wait(milliseconds(9'750), {0, 3}).empty());
  EXPECT_EQ(wait(milliseconds(250), {0, 3}), nodes({1, 2}));
}

TEST_F(OutageTest, IsNotTheEndOfTheOnlyStream) {
  add(1);
  close_streams({0});
  EXPECT_TRUE(wait(milliseconds(9'750)).empty());
  EXPECT_FALSE(fleet_.is_cut_off());
  EXPECT_EQ(wait(milliseconds(250)), nodes({0}));
}

// All nodes lost their power, and their pods have other addresses afterwards.
TEST_F(OutageTest, EndsThreeLeasesAfterAWorkerOnAnotherMachineWasRefused) {
  add(2);
  EXPECT_TRUE(wait(seconds(60)).empty());
  fleet_.record_refusal(now_);
  EXPECT_TRUE(wait(seconds(20)).empty());
  fleet_.record_refusal(now_);
  EXPECT_TRUE(wait(milliseconds(9'750)).empty());
  EXPECT_EQ(wait(milliseconds(250)), nodes({0, 1}));
}

TEST_F(OutageTest, IsNotTheDepartureOfAllWorkers) {
  add(2);
  for (const int i : {0, 1}) fleet_.at(node(i)).leaving = true;
  close_streams({0, 1});
  EXPECT_EQ(wait(seconds(10)), nodes({0, 1}));
}

TEST_F(OutageTest, EndsWithTheLastWorker) {
  add(2);
  EXPECT_TRUE(wait(seconds(3)).empty());
  fleet_.erase(node(0));
  EXPECT_TRUE(fleet_.is_cut_off());
  fleet_.erase(node(1));
  EXPECT_FALSE(fleet_.is_cut_off());
}

// Hosts that were restarted during an outage run new incarnations of their workers. The streams of
// the earlier ones have not ended.
TEST_F(OutageTest, ANewIncarnationReplacesASilentWorkerOnly) {
  add(3);
  EXPECT_FALSE(accepts(registration(0, 2)));
  EXPECT_TRUE(wait(seconds(60)).empty());
  EXPECT_TRUE(accepts(registration(0, 2)));
  EXPECT_EQ(receive(0), seconds(60));
  EXPECT_TRUE(accepts(registration(1, 2)))
      << "its lease has started again, but it has sent nothing";
  EXPECT_FALSE(accepts(registration(0, 2)));
}

TEST_F(OutageTest, ANewIncarnationReplacesNoWorkerWithAnUnreadMessage) {
  add(1);
  EXPECT_TRUE(wait(seconds(5)).empty());
  EXPECT_TRUE(accepts(registration(0, 2)));
  fleet_.postpone(node(0), now_);
  EXPECT_FALSE(accepts(registration(0, 2)));
}

// A silent worker, or one whose stream broke because nothing arrived, may still run its ranks.
TEST_F(OutageTest, ANewIncarnationOnAnotherMachineReplacesOnlyAWorkerWhoseProcessHasEnded) {
  add(2);
  WorkerRegistered other_host = registration(0, 2);
  other_host.host = "other";
  WorkerRegistered other_address = registration(0, 2);  // pods may have the same host name
  other_address.rendezvous_address = "10.0.0.7:5";
  EXPECT_TRUE(wait(seconds(9), {1}).empty());
  EXPECT_FALSE(accepts(other_host));
  EXPECT_FALSE(accepts(other_address));
  close_streams({0});
  EXPECT_FALSE(accepts(other_host));
  EXPECT_TRUE(accepts(registration(0, 2)));

  close_streams({1});
  other_host.worker = node(1);
  EXPECT_TRUE(accepts(other_host)) << "its stream broke at once";
}

TEST_F(OutageTest, TheSilenceOfAWorkerInAnOutageIsNoEvidenceBeforeItsLeaseEnds) {
  add(4);
  EXPECT_EQ(fleet_.judged_from(fleet_.at(node(1))), Instant{});
  const Instant begin = now_;
  EXPECT_TRUE(wait(seconds(3), {0}).empty());
  EXPECT_EQ(fleet_.judged_from(fleet_.at(node(1))), begin + kLeasesOfMost * fleet_.lease());
  EXPECT_EQ(receive(1), Duration::zero());
  EXPECT_EQ(fleet_.judged_from(fleet_.at(node(1))), Instant{});
  EXPECT_EQ(fleet_.judged_from(fleet_.at(node(2))), now_ + fleet_.lease()) << "it may return late";
}

// A pause of the coordinator in an outage is excused once.
TEST_F(OutageTest, APauseOfTheCoordinatorCountsOnce) {
  add(2);
  EXPECT_TRUE(wait(seconds(20)).empty());
  now_ += seconds(100);
  fleet_.excuse(seconds(100), now_);
  EXPECT_TRUE(wait(seconds(20)).empty());
  EXPECT_EQ(receive(0), seconds(40));
}

}  // namespace
}  // namespace muster::coordinator
