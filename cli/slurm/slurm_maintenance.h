// Maintenance that Slurm has planned: reservations with the flag MAINT. Pure functions.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <absl/time/time.h>

#include "common/time/time.h"

namespace muster::cli {

// A reservation with the flag MAINT in the output of `scontrol show reservation -o`.
struct SlurmMaintenance {
  std::string reservation;
  std::string nodes;  // in Slurm's form: "node[1-4,7]"
  int64_t start_unix_ns = 0;
};
// Returns the reservations whose start is known. `zone`: that of Slurm's times.
std::vector<SlurmMaintenance> parse_slurm_maintenance(std::string_view text, absl::TimeZone zone);

// The allocation of this process, with the times that Slurm has reported for it.
struct SlurmAllocation {
  std::string reservation{};  // SLURM_JOB_RESERVATION, possibly several names; empty: none
  int64_t start_unix_ns = 0;  // 0: not known
  int64_t end_unix_ns = 0;    // 0: not known, or no limit
};
// A node gets no new ranks from this time before its maintenance on. Reservations are often made
// weeks ahead for all nodes, and until then the nodes are of use. Most jobs save more often.
constexpr Duration kMaintenanceAhead = std::chrono::hours(1);
// Returns whether the allocation's nodes must be drained now for the maintenance: it begins during
// the allocation, within kMaintenanceAhead. It does not concern an allocation in the reservation
// itself, nor one that Slurm has started within the maintenance.
bool concerns_allocation(const SlurmMaintenance& maintenance, const SlurmAllocation& allocation,
                         int64_t now_unix_ns);

// The next maintenance of a node.
struct NodeMaintenance {
  std::string reservation;
  int64_t start_unix_ns = 0;

  friend bool operator==(const NodeMaintenance&, const NodeMaintenance&) = default;
};
using MaintenanceByNode = std::map<std::string, NodeMaintenance>;

// The changes from the maintenance that was reported to the coordinator to the one planned now.
struct MaintenanceChanges {
  MaintenanceByNode drained;          // new, or at another time
  std::vector<std::string> admitted;  // no longer planned
};
MaintenanceChanges maintenance_changes(const MaintenanceByNode& known,
                                       const MaintenanceByNode& planned);

}  // namespace muster::cli
