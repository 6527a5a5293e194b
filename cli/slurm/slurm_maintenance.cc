#include "cli/slurm/slurm_maintenance.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "cli/slurm/slurm_job.h"
#include "common/text/absl_view.h"

namespace muster::cli {

std::vector<SlurmMaintenance> parse_slurm_maintenance(std::string_view text, absl::TimeZone zone) {
  std::vector<SlurmMaintenance> planned;
  for (const absl::string_view line : absl::StrSplit(av(text), '\n')) {
    const std::vector<std::string> flags = absl::StrSplit(slurm_field(sv(line), "Flags"), ',');
    SlurmMaintenance one{slurm_field(sv(line), "ReservationName"), slurm_field(sv(line), "Nodes"),
                         0};
    absl::Time start;
    std::string problem;
    if (one.reservation.empty() || one.nodes.empty() ||
        std::ranges::find(flags, "MAINT") == flags.end() ||
        !absl::ParseTime("%Y-%m-%dT%H:%M:%S", slurm_field(sv(line), "StartTime"), zone, &start,
                         &problem))
      continue;
    one.start_unix_ns = absl::ToUnixNanos(start);
    planned.push_back(std::move(one));
  }
  return planned;
}

bool concerns_allocation(const SlurmMaintenance& maintenance, const SlurmAllocation& allocation,
                         int64_t now_unix_ns) {
  const std::vector<std::string> own = absl::StrSplit(allocation.reservation, ',');
  if (std::ranges::find(own, maintenance.reservation) != own.end()) return false;
  const int64_t start = maintenance.start_unix_ns;
  if (start <= allocation.start_unix_ns) return false;
  if (allocation.end_unix_ns != 0 && start >= allocation.end_unix_ns) return false;
  return start - now_unix_ns <= kMaintenanceAhead.count();
}

MaintenanceChanges maintenance_changes(const MaintenanceByNode& known,
                                       const MaintenanceByNode& planned) {
  MaintenanceChanges changes;
  for (const auto& [node, maintenance] : planned) {
    const auto found = known.find(node);
    if (found == known.end() || found->second != maintenance)
      changes.drained.emplace(node, maintenance);
  }
  for (const auto& [node, maintenance] : known)
    if (!planned.contains(node)) changes.admitted.push_back(node);
  return changes;
}

}  // namespace muster::cli
