#include "coordinator/core/fleet/fleet.h"

#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

using std::chrono::seconds;

WorkerName worker(int i) { return WorkerName(absl::StrCat("n", i)); }

class FleetTest : public testing::Test {
 protected:
  void add(int i) {
    WorkerRegistered event;
    event.worker = worker(i);
    event.slots = 1;
    fleet_.add(event, now_);
  }
  bool is_expired(const WorkerName& name, Instant now) const {
    const Worker* worker = fleet_.find(name);
    return worker != nullptr && fleet_.lease_end(*worker) <= now;
  }
  void receive(int i) { ASSERT_NE(fleet_.receive(worker(i), Incarnation(), now_), nullptr); }

  Instant now_ = Instant(std::chrono::hours(1));
  CoreOptions options_;
  Fleet fleet_{options_};
};

TEST_F(FleetTest, HasADeadlineWhileThereAreWorkers) {
  EXPECT_EQ(fleet_.next_deadline(), std::nullopt);
  add(1);
  EXPECT_EQ(fleet_.next_deadline(), now_ + options_.worker_lease);
  now_ += options_.worker_lease;
  EXPECT_EQ(fleet_.take_expired(now_), std::vector<WorkerName>{worker(1)});
  EXPECT_EQ(fleet_.next_deadline(), std::nullopt);
}

// The deadline stays a lower bound while messages move the leases, and no lease ends late.
TEST_F(FleetTest, EndsEachLeaseInTime) {
  add(1);
  now_ += seconds(2);
  add(2);
  now_ += seconds(1);
  receive(1);
  now_ = *fleet_.next_deadline();
  EXPECT_TRUE(fleet_.take_expired(now_).empty());
  EXPECT_EQ(fleet_.next_deadline(), now_ + seconds(2)) << "the second worker's lease";
  now_ += seconds(2);
  EXPECT_TRUE(is_expired(worker(2), now_));
  EXPECT_FALSE(is_expired(worker(1), now_));
  EXPECT_FALSE(is_expired(worker(3), now_));
  EXPECT_EQ(fleet_.take_expired(now_), std::vector<WorkerName>{worker(2)});
  EXPECT_EQ(fleet_.next_deadline(), now_ + seconds(1));
}

TEST_F(FleetTest, VisitsOrphansBeforeALongLeaseEnds) {
  options_.worker_lease = std::chrono::hours(1);
  fleet_ = Fleet(options_);
  add(1);
  EXPECT_LE(*fleet_.next_deadline(), now_ + options_.torn_down_within)
      << "orphans that appear after this visit are overdue later";
}

// A worker that has not received a shorter lease yet ends its ranks by the longer one.
TEST_F(FleetTest, ShortensLeasesOnceAllWorkersHaveReceivedThem) {
  options_.heartbeat_budget = 1;
  fleet_ = Fleet(options_);
  EXPECT_FALSE(fleet_.adapt_pace(now_));
  for (int i = 0; i < 4; ++i) add(i);
  EXPECT_TRUE(fleet_.adapt_pace(now_));
  EXPECT_FALSE(fleet_.adapt_pace(now_));
  EXPECT_EQ(fleet_.pace().busy, seconds(4));
  EXPECT_EQ(fleet_.lease(), seconds(20));
  EXPECT_GE(fleet_.silence_max(), seconds(12)) << "three heartbeats";
  EXPECT_FALSE(is_expired(worker(0), now_ + seconds(19)));
  for (int i = 1; i < 4; ++i) fleet_.erase(worker(i));
  now_ += seconds(1);
  EXPECT_TRUE(fleet_.adapt_pace(now_));
  EXPECT_EQ(fleet_.pace().lease, options_.worker_lease);
  EXPECT_EQ(fleet_.lease(), seconds(20));
  const Instant begin = now_;
  for (; now_ < begin + seconds(65); now_ += seconds(1)) {
    receive(0);
    EXPECT_TRUE(fleet_.take_expired(now_).empty());
  }
  EXPECT_EQ(fleet_.lease(), options_.worker_lease);
}

TEST_F(FleetTest, AWorkerOfARestartedCoordinatorHasTimeToRegister) {
  Job job;
  for (int i = 0; i < 1'000; ++i) job.placement.push_back({Rank(i), worker(i), 0, {}});
  fleet_.await_workers_of(job, now_);
  fleet_.begin_waiting(/*has_had_jobs=*/false, now_);
  const Duration time = options_.worker_lease + seconds(2);
  EXPECT_FALSE(is_expired(worker(999), now_ + time - Duration(1)));
  EXPECT_TRUE(is_expired(worker(999), now_ + time));
}

TEST_F(FleetTest, ForgetsTheOldestAbsentWorkers) {
  const int last = static_cast<int>(kAbsentMax);
  for (int i = last; i >= 0; --i) {
    now_ += std::chrono::milliseconds(1);
    add(i);
    fleet_.erase(worker(i));
  }
  EXPECT_LE(fleet_.absent().size(), kAbsentMax);
  EXPECT_TRUE(fleet_.absent().contains(worker(0)));
  EXPECT_FALSE(fleet_.absent().contains(worker(last)));
}

TEST_F(FleetTest, AnUnreadMessageExtendsALeaseUntilItIsRead) {
  add(1);
  add(2);
  now_ += options_.worker_lease;
  EXPECT_EQ(fleet_.expiring(now_), (std::vector<WorkerName>{worker(1), worker(2)}));
  fleet_.postpone(worker(1), now_);
  fleet_.postpone(worker(3), now_);
  EXPECT_EQ(fleet_.take_expired(now_), std::vector<WorkerName>{worker(2)});
  fleet_.erase(worker(2));
  EXPECT_TRUE(fleet_.expiring(now_).empty());
  now_ = *fleet_.next_deadline();
  EXPECT_EQ(fleet_.take_expired(now_), std::vector<WorkerName>{worker(1)});
}

// Workers that are silent for longer than the shorter lease get their extension first.
TEST_F(FleetTest, AnUnreadMessageExtendsALeaseThatBecomesShorter) {
  options_.heartbeat_budget = 1;
  fleet_ = Fleet(options_);
  for (int i = 0; i < 4; ++i) add(i);
  EXPECT_TRUE(fleet_.adapt_pace(now_));
  const Duration longer = fleet_.lease();
  for (int i = 2; i < 4; ++i) fleet_.erase(worker(i));
  EXPECT_TRUE(fleet_.adapt_pace(now_));
  const Duration shorter = fleet_.pace().lease;
  ASSERT_LT(shorter, longer);
  while (fleet_.lease() == longer) {
    now_ += longer - seconds(1);
    EXPECT_TRUE(fleet_.expiring(now_).empty());
    EXPECT_TRUE(fleet_.take_expired(now_).empty());
    if (fleet_.lease() == longer) {
      receive(0);
      receive(1);
    }
  }
  EXPECT_TRUE(is_expired(worker(0), now_));
  now_ = *fleet_.next_deadline();
  EXPECT_EQ(fleet_.expiring(now_), (std::vector<WorkerName>{worker(0), worker(1)}));
  fleet_.postpone(worker(0), now_);
  EXPECT_EQ(fleet_.take_expired(now_), std::vector<WorkerName>{worker(1)});
}

TEST_F(FleetTest, UnreadMessagesExtendALeaseWithinBounds) {
  add(1);
  const Worker& one = fleet_.at(worker(1));
  const auto postpone_at_its_end = [&] {
    now_ = one.last_message + fleet_.lease();
    EXPECT_TRUE(is_expired(worker(1), now_));
    fleet_.postpone(worker(1), now_);
    return !is_expired(worker(1), now_);
  };
  for (int i = 0; i < kPostponementsMax; ++i) EXPECT_TRUE(postpone_at_its_end()) << i;
  EXPECT_FALSE(postpone_at_its_end());

  receive(1);
  for (int i = 0; i < kPostponementsMax; ++i) {
    EXPECT_TRUE(postpone_at_its_end()) << i;
    fleet_.excuse(seconds(1), now_);
  }
  EXPECT_FALSE(postpone_at_its_end()) << "time of the coordinator's absence is no message";
}

TEST_F(FleetTest, NoWorkerIsUnreachableWhileMessagesWereNotRead) {
  add(1);
  now_ += seconds(2);
  EXPECT_TRUE(fleet_.is_unreachable(fleet_.at(worker(1)), now_));
  fleet_.judge_no_silence(now_);
  EXPECT_FALSE(fleet_.is_unreachable(fleet_.at(worker(1)), now_));
  now_ += fleet_.silence_max();
  EXPECT_TRUE(fleet_.is_unreachable(fleet_.at(worker(1)), now_));
}

}  // namespace
}  // namespace muster::coordinator
