// Text about ranks, collectives and findings for the sentence of a blame. Pure. Text from pages is
// made printable and is truncated.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/rank_evidence.h"
#include "common/rank_set.h"
#include "coordinator/core/blame/wait_graph.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// "rank 5 on node3"; "rank 5" if its placement is not known.
std::string rank_text(int32_t rank, const std::vector<RankPlacement>& placement);
// "rank 3", "ranks 0-4,6-7".
std::string ranks_text(const RankSet& ranks);
RankSet ranks_of(const std::vector<WaitGraph::Member>& members);
RankSet ranks_of(const std::vector<int32_t>& ranks);

// The group's name without its channel: "fsdp+context".
std::string axis_text(const WaitGraph::Group& group);
// "all-reduce 41 "layer 3 mlp all-gather" of fsdp"; "recv "micro-batch 3 activations" of pipeline".
std::string collective_text(const WaitGraph& graph, const WaitGraph::Instance& instance);
// The name alone: "layer 3 mlp all-gather"; "all-reduce 41" if the name is not known.
std::string collective_short(const WaitGraph::Instance& instance);
// The call that one member shows, for members that disagree: "all-reduce "norm" of 1,024 bytes".
std::string call_text(const GroupEvidence& call);
// The longest wait of the members inside: " (12.3 s)"; empty if no page shows it.
std::string wait_text(const std::vector<WaitGraph::Member>& inside);

// "12.3 s", "4 min", "3.5 h".
std::string age_text(Duration age);

}  // namespace muster::coordinator
