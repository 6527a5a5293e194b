#include "coordinator/core/records/sizes.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

namespace muster::coordinator {

int32_t largest_size(const JobSpec& spec, int64_t nodes_max) {
  if (nodes_max >= spec.nodes) return spec.nodes;
  if (spec.is_program())
    return nodes_max >= smallest_size(spec) ? static_cast<int32_t>(nodes_max) : 0;
  const auto fits = std::find_if(spec.smaller.begin(), spec.smaller.end(),
                                 [&](const SmallerJob& size) { return size.nodes <= nodes_max; });
  return fits == spec.smaller.end() ? 0 : fits->nodes;
}

int32_t smallest_size(const JobSpec& spec) {
  if (spec.is_program()) return spec.min_nodes == 0 ? spec.nodes : spec.min_nodes;
  return spec.smaller.empty() ? spec.nodes : spec.smaller.back().nodes;
}

JobSpec spec_of_size(const JobSpec& spec, int32_t nodes) {
  JobSpec sized = spec;
  const auto smaller = std::find_if(spec.smaller.begin(), spec.smaller.end(),
                                    [&](const SmallerJob& size) { return size.nodes == nodes; });
  if (smaller != spec.smaller.end()) sized.train_config_json = smaller->train_config_json;
  sized.nodes = nodes;
  sized.smaller.clear();
  sized.spares = sized.min_nodes = 0;
  return sized;
}

std::vector<WorkerName> nodes_of(const std::vector<RankPlacement>& placement) {
  std::vector<WorkerName> nodes;
  for (const RankPlacement& rank : placement)
    if (rank.local_rank == 0) nodes.push_back(rank.worker);
  return nodes;
}

std::string size_text(const Job& job) {
  return absl::StrCat(nodes_now(job), " of ", job.spec.nodes,
                      job.spec.nodes == 1 ? " node" : " nodes");
}

}  // namespace muster::coordinator
