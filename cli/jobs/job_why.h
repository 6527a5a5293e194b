// Compares what a waiting job needs with what the fleet has, for `muster status JOB --why`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/v1/muster.pb.h"

namespace muster::cli {

// The requirements of a job.
struct JobNeeds {
  int32_t nodes = 0;
  int32_t fewest_nodes = 0;   // min_nodes, or `nodes`
  int32_t segment_nodes = 0;  // as in JobSpec
  int32_t slots = 0;          // per node
  int32_t gpus_per_rank = 0;  // as in JobSpec
  // Device memory of the rank that needs the most, in bytes; 0: not planned.
  uint64_t gpu_bytes = 0;
  std::vector<std::string> selector{};     // as JobSpec.node_selector
  std::vector<std::string> tolerations{};  // as in JobSpec
};

// Returns the needs of a job. `gpu_bytes`: as in JobNeeds.
// `has_started`: only later attempts may have fewer nodes.
JobNeeds needs_of(const v1::JobSpec& spec, bool has_started, uint64_t gpu_bytes);

// Returns why the worker cannot take ranks of the job now: "4 of 8 slots are free"; empty: it can.
std::string why_not(const v1::WorkerInfo& worker, const JobNeeds& needs);

// Returns a line with the needs, one for each condition of the selector, one with the workers of
// each domain that can take ranks, if the workers have domains, and a table of the workers. Shows
// at most 50 workers; those that can take ranks come last.
std::string describe_why(const JobNeeds& needs, const v1::ListWorkersResponse& workers);

// Returns {"nodes", "min_nodes", "slots_per_node", "gpus_per_rank", "gpu_memory_bytes",
// "segment_nodes", "node_selector", "tolerations", "domains": [{"name", "nodes", "able"}],
// "workers": [{"name", "why_not"}]}.
nlohmann::json why_to_json(const JobNeeds& needs, const v1::ListWorkersResponse& workers);

}  // namespace muster::cli
