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
  fleet_.at(worker(1)).last_message = now_;
  now_ = *fleet_.next_deadline();
  EXPECT_TRUE(fleet_.take_expired(now_).empty());
  EXPECT_EQ(fleet_.next_deadline(), now_ + seconds(2)) << "the second worker's lease";
  now_ += seconds(2);
  EXPECT_TRUE(fleet_.is_expired(worker(2), now_));
  EXPECT_FALSE(fleet_.is_expired(worker(1), now_));
  EXPECT_FALSE(fleet_.is_expired(worker(3), now_));
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

}  // namespace
}  // namespace muster::coordinator
