// Reads the config file of a rank, and derives values from it.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/startup/rank_env.h"

namespace muster::trainer {

// The maximum size of a config file, which has some hundred short values.
constexpr size_t kConfigBytesMax = 1 << 20;

// Reads a config. Returns NotFound, or InvalidArgument with the path and the field.
absl::StatusOr<TrainConfig> load_config(const std::string& path);

// Returns the number of threads of a rank, at least 1: the config's number, or else that of the
// environment, which a worker sets to each slot's share of the cores. If neither has one, returns
// the number of this process's cores divided by the number of the job's ranks on the machine.
int32_t threads_per_rank(const TrainConfig& config, const RankEnv& env);

// Returns InvalidArgument if the product of the degrees of the config's mesh is not `world_size`,
// the number of ranks.
absl::Status check_world_size(const TrainConfig& config, int32_t world_size);

}  // namespace muster::trainer
