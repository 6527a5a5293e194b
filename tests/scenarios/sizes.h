// Jobs of several sizes in a scenario. The config of each size contains its number of nodes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "coordinator/core/records/job.h"
#include "tests/scenarios/words.h"

namespace muster::coordinator {

inline std::string config_of(int32_t nodes) { return absl::StrCat("{\"nodes\": ", nodes, "}"); }

// Parses the words "nodes N … spares N min N", and adds all sizes from `min` nodes on to `spec`.
inline void add_sizes(const std::vector<std::string>& words, JobSpec& spec) {
  spec.train_config_json = config_of(spec.nodes);
  spec.spares = number_of(words, "spares", 0);
  spec.min_nodes = number_of(words, "min", 0);
  const int32_t least = spec.min_nodes == 0 ? spec.nodes : spec.min_nodes;
  for (int32_t nodes = spec.nodes - 1; nodes >= least && !spec.is_program(); --nodes)
    spec.smaller.push_back({nodes, config_of(nodes)});
}

// Returns the number of ranks of the size that a worker received, with a leading space: " of 4".
inline std::string size_text(const JobSpec& spec) {
  const bool agrees = spec.is_program() || spec.train_config_json == config_of(spec.nodes);
  return absl::StrCat(" of ", spec.world_size(), agrees ? "" : ", with another size's config");
}

inline std::string names_text(const std::vector<WorkerName>& workers) {
  std::vector<std::string> names;
  for (const WorkerName& worker : workers) names.push_back(worker.value());
  return names.empty() ? "none" : absl::StrJoin(names, " ");
}

}  // namespace muster::coordinator
