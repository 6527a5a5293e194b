// Settings → one job. Fills in open values (-1, relative paths, the number of ranks) and validates
// everything that does not need the job's files. Pure: reads no file, clock or environment.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "common/mesh.h"
#include "jobspec/config.h"
#include "jobspec/text_keys.h"
#include "muster/v1/muster.pb.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// The command line's options besides key=value, and values that a pure function cannot read itself.
struct LaunchOptions {
  // Unset: the product of that level's mesh degrees. A degree of -1 counts as 1, but inside a node
  // it makes a rank of each of `node_gpus`.
  std::optional<int32_t> nodes;
  std::optional<int32_t> ranks_per_node;
  std::optional<int32_t> spares;  // as the key of this name; the same for min_nodes
  std::optional<int32_t> min_nodes;
  std::string working_directory;  // absolute; the base of relative paths
  std::string home;               // for a leading ~/; may be empty
  std::string default_run_name;   // for an empty run_name
  std::string user;
  int32_t priority = 0;
  std::optional<int32_t> gpus_per_rank;            // unset: depends on hardware
  bool own_workers = false;                        // without other jobs
  int32_t node_gpus = 0;                           // that a node gives to the job; 0: none, unknown
  std::optional<double> cpu_bfloat16_speed;        // precision_keys.h
  std::map<std::string, std::string> environment;  // for every rank
};

struct ResolvedJob {
  explicit ResolvedJob(const Mesh& resolved) : mesh(resolved) {}

  trainer::TrainConfig train;
  v1::JobSpec spec;
  Mesh mesh;
  std::vector<std::string> warnings;  // of the config and of resolving it
  // Text that must be tokenized before the job starts. Until then the paths of the data in `train`
  // and `spec` are those of the text.
  JobTexts texts;
};

// InvalidArgument with one sentence that names the conflicting keys, their values, and what is
// allowed.
absl::StatusOr<ResolvedJob> resolve_job(const Config& config, const LaunchOptions& options);

}  // namespace muster::jobspec
