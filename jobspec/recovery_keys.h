// The keys of what is done after a fault: restarts_max, spares and min_nodes, and the sizes on which a job may go on.
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
  int32_t min_nodes = 0;  // 0: all
};

// Options of the command line win where the keys are not given; both together must agree. The reader's status has what is wrong with
// the keys themselves.
absl::StatusOr<Recovery> read_recovery(SettingsReader& reader, std::optional<int32_t> spares,
                                       std::optional<int32_t> min_nodes);

// `train` on `nodes` nodes with the same global batch: data shrinks between nodes, and fsdp where data is through or was 1. A rank's
// micro-batch does not grow; more accumulation steps make up for the ranks that are gone. InvalidArgument says why it cannot be.
absl::StatusOr<trainer::TrainConfig> train_on_fewer(const trainer::TrainConfig& train,
                                                    int32_t nodes);

// Fills in spec.spares, min_nodes and smaller, of which the last has at most kSmallerSizesMax. InvalidArgument when there is no size
// that min_nodes asks for, and says which would do.
absl::Status fill_recovery(const trainer::TrainConfig& train, const Recovery& recovery,
                           v1::JobSpec& spec, std::vector<std::string>& warnings);

}  // namespace muster::jobspec
