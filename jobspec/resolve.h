// Settings → one job: everything that is left open is filled in (-1, relative paths, the number of ranks)
// and everything that can be judged without the job's files is judged. Pure: reads no file, clock or environment.
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
#include "muster/v1/muster.pb.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// What the command line says besides key=value, and what a pure function must be told.
struct LaunchOptions {
  // Unset: the product of that level's mesh degrees when none is -1, else 1.
  std::optional<int32_t> nodes;
  std::optional<int32_t> ranks_per_node;
  std::optional<int32_t> spares;  // of the key's meaning, as the next
  std::optional<int32_t> min_nodes;
  std::string working_directory;  // absolute; relative paths start here
  std::string home;               // for a leading ~/; may be empty
  std::string default_run_name;   // for an empty run_name
  std::string user;
  int32_t priority = 0;
  std::optional<int32_t> gpus_per_rank;            // unset: by hardware
  bool own_workers = false;                        // nobody else's jobs are on them
  std::map<std::string, std::string> environment;  // for every rank
};

struct ResolvedJob {
  explicit ResolvedJob(const Mesh& resolved) : mesh(resolved) {}

  trainer::TrainConfig train;
  v1::JobSpec spec;
  Mesh mesh;
  std::vector<std::string> warnings;  // the config's and those of resolving it
};

// InvalidArgument with one sentence that names the keys that disagree, their values, and what would be right.
absl::StatusOr<ResolvedJob> resolve_job(const Config& config, const LaunchOptions& options);

}  // namespace muster::jobspec
