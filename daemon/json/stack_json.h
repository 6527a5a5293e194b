// Stacks and evidence of ranks as JSON, for --json and the coordinator's page.
#pragma once

#include <vector>

#include <nlohmann/json.hpp>

#include "common/job/rank_evidence.h"
#include "common/job/rank_set.h"
#include "common/stacks/stack_tree.h"
#include "common/text/python_frame.h"
#include "muster/v1/muster.pb.h"

namespace muster::daemon {

// Returns the parts of a Python frame; an empty file for other frames.
PythonFrame python_frame(const StackTree& stacks, uint32_t index);

nlohmann::json ranks_to_json(const RankSet& ranks);
nlohmann::json stacks_to_json(const StackTree& stacks);
nlohmann::json evidence_to_json(const RankEvidence& rank);
nlohmann::json dump_to_json(const v1::DumpJobStacksResponse& dump, const StackTree& stacks,
                            const std::vector<RankEvidence>& ranks);

}  // namespace muster::daemon
