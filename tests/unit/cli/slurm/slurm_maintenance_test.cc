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
