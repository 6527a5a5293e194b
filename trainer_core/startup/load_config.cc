#include "trainer_core/startup/load_config.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/process/usable_cpus.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/base/mesh_rules.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::trainer {

absl::StatusOr<TrainConfig> load_config(const std::string& path) {
  const auto json = read_json_file(path, kConfigBytesMax);
  if (!json.ok()) {
    return absl::Status(json.status().code(), absl::StrCat("config: ", json.status().message()));
  }
  auto config = train_config_from_json(*json);
  if (!config.ok())
    return absl::Status(config.status().code(),
                        absl::StrCat("config ", path, ": ", config.status().message()));
  return config;
}

int32_t threads_per_rank(const TrainConfig& config, const RankEnv& env) {
  if (config.threads > 0) return config.threads;
  if (env.threads > 0) return env.threads;
  return std::max(1, usable_cpus() / env.local_world_size);
}

absl::Status check_world_size(const TrainConfig& config, int32_t world_size) {
  if (mesh_of(config.mesh).ranks() == world_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the mesh (", format_mesh_keys(config.mesh),
                                                 ") does not multiply to ", world_size, " ranks"));
}

}  // namespace muster::trainer
