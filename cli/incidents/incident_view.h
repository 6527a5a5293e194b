// Incidents as text for people.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "cli/jobs/stack_view.h"
#include "common/job/rank_evidence.h"
#include "common/stacks/stack_tree.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns the rows of `muster incident list`. `now_unix_ns`: the current time, for ages. Sentences
// are cut so that no row exceeds `columns_max` columns.
std::string describe_incident_list(const v1::ListIncidentsResponse& incidents, int64_t now_unix_ns,
                                   size_t columns_max);
// Returns one screen for `muster incident show`: the incident's sentence, suspects, moments,
// collectives, stacks, last log lines, kernel messages and the actions taken. `view` limits lines
// and stacks. Returns InvalidArgument if the incident's stacks are not a valid tree.
absl::StatusOr<std::string> describe_incident(const v1::Incident& incident, int64_t now_unix_ns,
                                              StackView view);

}  // namespace muster::cli
