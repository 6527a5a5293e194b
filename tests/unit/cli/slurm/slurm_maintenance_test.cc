#include "cli/slurm/slurm_maintenance.h"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

TEST(SlurmMaintenance, IsAReservationWithTheFlag) {
  constexpr char kText[] =
      "ReservationName=kernel StartTime=2026-12-01T08:00:00 EndTime=2026-12-01T10:00:00 "
      "Duration=02:00:00 Nodes=node[1-2] NodeCnt=2 CoreCnt=8 Features=(null) PartitionName=p "
      "Flags=MAINT,IGNORE_JOBS,SPEC_NODES TRES=cpu=8 Users=root Groups=(null) State=INACTIVE\n"
      "ReservationName=class StartTime=2026-12-01T08:00:00 Nodes=node3 Flags=SPEC_NODES "
      "State=INACTIVE\n"
      "ReservationName=odd StartTime=Unknown Nodes=node4 Flags=MAINT State=INACTIVE\n"
      "No reservations in the system\n";
  const auto planned = parse_slurm_maintenance(kText, absl::FixedTimeZone(3600));
  ASSERT_EQ(planned.size(), 1U);
  EXPECT_EQ(planned[0].reservation, "kernel");
  EXPECT_EQ(planned[0].nodes, "node[1-2]");
  EXPECT_EQ(planned[0].start_unix_ns, int64_t{1'796'108'400} * 1'000'000'000);
  EXPECT_TRUE(
      parse_slurm_maintenance("No reservations in the system", absl::UTCTimeZone()).empty());
}

TEST(SlurmMaintenance, ConcernsAnAllocationShortlyBeforeItBeginsThere) {
  constexpr int64_t kMinute = int64_t{60} * 1'000'000'000, kDay = 24 * 60 * kMinute;
  const int64_t now = 100 * kDay;
  const SlurmAllocation week{.start_unix_ns = now - kDay, .end_unix_ns = now + 6 * kDay};
  const auto concerns = [&](int64_t start, const SlurmAllocation& allocation) {
    return concerns_allocation({"kernel", "node1", start}, allocation, now);
  };
  EXPECT_TRUE(concerns(now + 59 * kMinute, week));
  EXPECT_TRUE(concerns(now - 5 * kMinute, week)) << "it has begun";
  EXPECT_FALSE(concerns(now + 3 * kDay, week)) << "the node is of use until then";
  EXPECT_FALSE(concerns(now + 21 * kDay, week)) << "the allocation ends before";
  EXPECT_FALSE(concerns(now + 10 * kMinute, {.start_unix_ns = 0, .end_unix_ns = now + kMinute}));
  EXPECT_FALSE(concerns(now - 2 * kDay, week)) << "Slurm has started the job in it";
  EXPECT_TRUE(concerns(now + 10 * kMinute, {})) << "the allocation's times are not known";
  EXPECT_FALSE(concerns(now + 10 * kMinute, {.reservation = "tests,kernel"})) << "the job's own";
  EXPECT_TRUE(concerns(now + 10 * kMinute, {.reservation = "kernel2"}));
}

TEST(SlurmMaintenance, ChangesAreReportedOnce) {
  const MaintenanceByNode planned = {{"node1", {"kernel", 10}}, {"node2", {"kernel", 10}}};
  EXPECT_EQ(maintenance_changes({}, planned).drained, planned);
  EXPECT_TRUE(maintenance_changes(planned, planned).drained.empty());
  EXPECT_TRUE(maintenance_changes(planned, planned).admitted.empty());
  const auto later = maintenance_changes(planned, {{"node1", {"kernel", 20}}});
  EXPECT_EQ(later.drained, (MaintenanceByNode{{"node1", {"kernel", 20}}}));
  EXPECT_EQ(later.admitted, (std::vector<std::string>{"node2"}));
}

}  // namespace
}  // namespace muster::cli
