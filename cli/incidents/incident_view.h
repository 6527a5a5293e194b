// Incidents as text for people and as JSON for programs.
#pragma once

#include <string>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "cli/jobs/stack_view.h"
#include "common/rank_evidence.h"
#include "common/stack_tree.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Rows of `muster incident list`. `now_unix_ns` dates ages; sentences end where the row has `columns_max` columns.
std::string describe_incidents(const v1::ListIncidentsResponse& incidents, int64_t now_unix_ns,
                               size_t columns_max);
// What `muster incident show` shows, on one screen: the sentence, suspects, what happened when, collectives, stacks, last lines, the
// kernel's words and what was done. InvalidArgument when its stacks are no tree. `view` says how lines and stacks are cut.
absl::StatusOr<std::string> describe_incident(const v1::Incident& incident, int64_t now_unix_ns,
                                              StackView view);

absl::StatusOr<nlohmann::json> incident_to_json(const v1::Incident& incident);

}  // namespace muster::cli
