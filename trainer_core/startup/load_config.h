// Reading a rank's config file.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/startup/rank_env.h"

namespace muster::trainer {

// Some hundred short values; anything larger is no config.
constexpr size_t kConfigBytesMax = 1 << 20;

// NotFound, or InvalidArgument naming the file and the field.
absl::StatusOr<TrainConfig> load_config(const std::string& path);

// Threads of one rank: the config's, or what the environment says (a worker says each slot's share), or this process's
// cores shared by the job's ranks of the machine, at least 1.
int32_t threads_per_rank(const TrainConfig& config, const RankEnv& env);

// InvalidArgument when the mesh's degrees do not multiply to the number of ranks.
absl::Status check_world_size(const TrainConfig& config, int32_t world_size);

}  // namespace muster::trainer
