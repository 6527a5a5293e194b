// The keys of fault recovery: restarts_max, spares and min_nodes, and the sizes on which a job may
// continue.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "jobspec/settings_reader.h"
#include "muster/v1/muster.pb.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

struct Recovery {
  int32_t restarts_max = 3;
  int32_t spares = 0;
  int32_t min_nodes = 0;  // 0: all nodes
};

// The command line's options apply if the keys are not set; if both are set, they must agree. The
// reader keeps errors of the keys themselves.
absl::StatusOr<Recovery> read_recovery(SettingsReader& reader, std::optional<int32_t> spares,
                                       std::optional<int32_t> min_nodes);

// Returns `train` for `nodes` nodes with the same global batch: data shrinks between nodes, and
// fsdp once data is 1. A rank's micro-batch does not grow; more accumulation steps replace the
// missing ranks. InvalidArgument if that is impossible, with the reason.
absl::StatusOr<trainer::TrainConfig> train_on_fewer(const trainer::TrainConfig& train,
                                                    int32_t nodes);

// Fills in spec.spares, min_nodes and smaller, of which the last has at most kSmallerSizesMax
// entries. InvalidArgument if no size satisfies min_nodes, with the sizes that would.
absl::Status fill_recovery(const trainer::TrainConfig& train, const Recovery& recovery,
                           v1::JobSpec& spec, std::vector<std::string>& warnings);

}  // namespace muster::jobspec
