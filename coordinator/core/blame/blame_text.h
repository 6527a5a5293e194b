// Text about ranks, collectives and findings for the sentence of a blame. Pure. Text from pages is
// made printable and is truncated.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/job/rank_evidence.h"
#include "common/job/rank_set.h"
#include "coordinator/core/blame/wait_graph.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Returns "rank 5 on node3", or "rank 5" if the rank's placement is not known.
std::string rank_and_node_text(int32_t rank, const std::vector<RankPlacement>& placement);
// Returns "rank 3" or "ranks 0-4,6-7".
std::string ranks_text(const RankSet& ranks);
RankSet ranks_of(const std::vector<WaitGraph::Member>& members);
RankSet ranks_of(const std::vector<int32_t>& ranks);

// Returns the group's name without its channel: "fsdp+context".
std::string axis_text(const WaitGraph::Group& group);
// Describes an instance: "all-reduce 41 "layer 3 mlp all-gather" of fsdp", "recv "micro-batch 3
// activations" of pipeline".
std::string collective_text(const WaitGraph& graph, const WaitGraph::Instance& instance);
// Returns only the name of an instance: "layer 3 mlp all-gather", or "all-reduce 41" if the name is
// not known.
std::string collective_short(const WaitGraph::Instance& instance);
// Describes the call of one member of a group whose members disagree: "all-reduce "norm" of 1,024
// bytes". A size of 0, which is that of programs that report none, is omitted.
std::string call_text(const GroupEvidence& call);
// Returns the longest wait of the members inside a collective: " (12.3 s)". Empty if no page shows
// a wait.
std::string wait_text(const std::vector<WaitGraph::Member>& inside);

// Returns "12.3 s", "4 min" or "3.5 h".
std::string age_text(Duration age);

}  // namespace muster::coordinator
