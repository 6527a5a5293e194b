// The keys of fault recovery (restarts_max, spares and min_nodes), and the numbers of nodes on
// which a job may continue.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "jobspec/settings/settings_reader.h"
#include "muster/v1/muster.pb.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// The values of these keys.
struct Recovery {
  int32_t restarts_max = 3;
  int32_t spares = 0;
  int32_t min_nodes = 0;  // 0: all nodes
};

// Reads the keys. The options `spares` and `min_nodes` of the command line apply if the keys are
// not set. Returns InvalidArgument if a key and its option have different values. Stores errors of
// single keys in `reader`.
absl::StatusOr<Recovery> read_recovery(SettingsReader& reader, std::optional<int32_t> spares,
                                       std::optional<int32_t> min_nodes);

// Returns `train` for `nodes` nodes with the same global batch. Reduces the degree of data between
// nodes, and once that is 1, the degree of fsdp. A rank's micro-batch does not grow; instead, each
// rank runs more gradient accumulation steps. Returns InvalidArgument, with the reason, if this is
// impossible.
absl::StatusOr<trainer::TrainConfig> train_on_fewer(const trainer::TrainConfig& train,
                                                    int32_t nodes);

// Sets spec.spares, spec.min_nodes and spec.smaller, the configs for fewer nodes (at most
// kSmallerSizesMax). Returns InvalidArgument, with the possible numbers of nodes, if the job cannot
// run on fewer nodes with this min_nodes.
absl::Status fill_recovery(const trainer::TrainConfig& train, const Recovery& recovery,
                           v1::JobSpec& spec, std::vector<std::string>& warnings);

}  // namespace muster::jobspec
