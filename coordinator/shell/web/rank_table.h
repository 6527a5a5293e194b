// The figures of all ranks of a job as binary columns, for the picture of its mesh. Their format is
// in docs/page-api.md.
#pragma once

#include <string>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "coordinator/core/core.h"

namespace muster::coordinator {

// Returns the columns. Called on the loop's thread: copies the values of 100,000 ranks within
// milliseconds.
std::string rank_table(const Core& core, const Job& job, Instant now, int64_t unix_ns);

// The data from which the page computes the place of a rank.
struct RankMap {
  uint64_t job = 0;
  uint32_t attempt = 0;
  int32_t ranks = 0;
  int32_t ranks_per_node = 1;
  std::vector<std::string> nodes;
  std::vector<std::string> switches;
  std::string train_config_json;  // at the present number of nodes
};
RankMap rank_map(const Core& core, const Job& job);
// Returns the object PlacementMap of the API. A config without a mesh, or with another number of
// ranks, has no axes.
nlohmann::json rank_map_to_json(const RankMap& map);

}  // namespace muster::coordinator
