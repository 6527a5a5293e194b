// Incidents and recoveries as JSON, for --json and the coordinator's page.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "common/job/rank_evidence.h"
#include "common/stacks/stack_tree.h"
#include "muster/v1/muster.pb.h"

namespace muster::daemon {

// The parts of an incident that its message has in another form.
struct IncidentEvidence {
  StackTree stacks;
  std::vector<RankEvidence> ranks;
  std::vector<std::string> kernel_messages;
};
// Returns InvalidArgument, with the reason, if the stacks are not a tree.
absl::StatusOr<IncidentEvidence> evidence_of(const v1::Incident& incident);
absl::StatusOr<nlohmann::json> incident_to_json(const v1::Incident& incident);

// A moment of a recovery: "detected". A time of 0 is not reached, or unknown.
struct RecoveryMoment {
  std::string_view name;
  int64_t unix_ns = 0;
};
std::array<RecoveryMoment, 10> moments_of(const v1::Recovery& recovery);
// Returns the steps that are made again; -1: not known.
int64_t steps_lost(const v1::Recovery& recovery);
// Returns the recovery as an object without unknown moments; null for an incident that ended no
// attempt.
nlohmann::json recovery_to_json(const v1::Incident& incident);

}  // namespace muster::daemon
