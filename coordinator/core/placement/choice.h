// The classes in which a job's placement chooses hosts. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <set>
#include <vector>

#include "common/job/ids.h"
#include "coordinator/core/placement/host_resources.h"
#include "coordinator/core/placement/placement.h"

namespace muster::coordinator {

// In the order of preference between equally near hosts.
enum class HostClass {
  kFormer,      // had other ranks of the job
  kReserved,    // reserved for the job
  kUnreserved,  // reserved for no job
  kOthers,      // reserved for another job
  kSuspect,     // below a switch that may have failed
  kAvoided,     // to be avoided
};
constexpr size_t kHostClasses = 6;

// The hosts with room of each class, in the order of the vector to which they point.
using HostChoices = std::array<std::vector<const Host*>, kHostClasses>;

inline std::vector<const Host*>& hosts_in_class(HostChoices& choices, HostClass which) {
  return choices[static_cast<size_t>(which)];
}

// Returns the hosts that have room; `without` is excluded.
HostChoices host_choices(const PlacementRequest& request, const std::set<WorkerName>& without,
                         const std::vector<Host>& hosts);

}  // namespace muster::coordinator
