// Reads a rank's config file.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/startup/rank_env.h"

namespace muster::trainer {

// A config has some hundred short values; a larger file is not a config.
constexpr size_t kConfigBytesMax = 1 << 20;

// Errors: NotFound, or InvalidArgument that names the file and the field.
absl::StatusOr<TrainConfig> load_config(const std::string& path);

// Returns the number of threads of one rank: the config's, or the environment's (a worker sets each
// slot's share), or this process's cores divided by the job's ranks on the machine, at least 1.
int32_t threads_per_rank(const TrainConfig& config, const RankEnv& env);

// Returns InvalidArgument if the product of the mesh's degrees is not the number of ranks.
absl::Status check_world_size(const TrainConfig& config, int32_t world_size);

}  // namespace muster::trainer
