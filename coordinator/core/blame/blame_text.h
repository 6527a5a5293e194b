// The words of a blame: ranks, collectives, what speaks against a rank. Pure; whatever comes from
// pages is made printable and short.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/rank_evidence.h"
#include "common/rank_set.h"
#include "coordinator/core/blame/wait_graph.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// "rank 5 on node3"; "rank 5" where it is not known where it is.
std::string rank_text(int32_t rank, const std::vector<RankPlacement>& placement);
// "rank 3", "ranks 0-4,6-7".
std::string ranks_text(const RankSet& ranks);
RankSet ranks_of(const std::vector<WaitGraph::Member>& members);
RankSet ranks_of(const std::vector<int32_t>& ranks);

// The group's name without its channel: "fsdp+context".
std::string axis_text(const WaitGraph::Group& group);
// "all-reduce 41 "layer 3 mlp all-gather" of fsdp"; "recv "micro-batch 3 activations" of pipeline".
std::string collective_text(const WaitGraph& graph, const WaitGraph::Instance& instance);
// Its name alone: "layer 3 mlp all-gather"; "all-reduce 41" where the name is not known.
std::string collective_short(const WaitGraph::Instance& instance);
// As one member has it, for members that do not agree: "all-reduce "norm" of 1,024 bytes".
std::string call_text(const GroupEvidence& call);
// How long the first of them has waited: " (12.3 s)"; empty when no page shows it.
std::string wait_text(const std::vector<WaitGraph::Member>& inside);

// "12.3 s", "4 min", "3.5 h".
std::string age_text(Duration age);

}  // namespace muster::coordinator
