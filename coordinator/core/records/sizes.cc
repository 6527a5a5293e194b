#include "coordinator/core/records/sizes.h"

#include <algorithm>
#include <type_traits>

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

int32_t fewest_nodes(const Job& job) {
  return job.attempt == Attempt(0) ? job.spec.nodes : smallest_size(job.spec);
}

JobSpec spec_of_size(const JobSpec& spec, int32_t nodes) {
  JobSpec sized = spec;
  const auto smaller = std::find_if(spec.smaller.begin(), spec.smaller.end(),
                                    [&](const SmallerJob& size) { return size.nodes == nodes; });
  if (smaller != spec.smaller.end()) sized.train_config_json = smaller->train_config_json;
  sized.nodes = nodes;
  sized.smaller.clear();
  sized.settings_json.clear();  // only a client reads it
  sized.spares = sized.min_nodes = sized.segment_nodes = 0;
  return sized;
}

size_t bytes_of(const JobSpec& spec) {
  size_t bytes = 0;
  for_each_job_field([&](const JobField&, auto member) {
    using Value = std::remove_cvref_t<decltype(spec.*member)>;
    if constexpr (std::is_same_v<Value, std::string>) {
      bytes += (spec.*member).size();
    } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
      for (const std::string& word : spec.*member) bytes += word.size();
    }
  });
  for (const auto& [name, value] : spec.environment) bytes += name.size() + value.size();
  for (const SmallerJob& size : spec.smaller) bytes += size.train_config_json.size();
  return bytes;
}

size_t bytes_of(const Job& job) {
  return bytes_of(job.spec) + (job.update ? bytes_of(job.update->spec) : 0) +
         (job.trial ? bytes_of(job.trial->former) : 0);
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
