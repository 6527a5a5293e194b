// What a run begins with that has no checkpoint of its own: parameters drawn from init_weights_seed, or those of
// load_parameters_path, MaxText's key.
#pragma once

#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/checkpoint/parameter_source.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/model/shard_layout.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// The config's load_parameters_path, whose tensors are those of the config's model. InvalidArgument names the first that is not, or
// the choice that makes the numbers mean something else (another layout of RoPE's pairs, norms that add one). Any other
// difference of what the models compute is a line in `notes`: some are wanted, as a longer context is.
absl::StatusOr<std::unique_ptr<ParameterSource>> open_initial_parameters(
    const TrainConfig& config, std::vector<std::string>& notes, Verify verify = Verify::kChecksums);

// Draws the parameters of a rank's flat block of shards from init_weights_seed, in the memory of `ops`. Value i of a
// tensor has the same bits on every mesh and every backend (base/normal_fill.h). Returns before a device is done.
void draw_parameters(Ops& ops, const TrainConfig& config, const ShardLayout& layout,
                     std::span<float> params);

// Reads a rank's flat block of shards, in host memory, from load_parameters_path. All ranks call it. Rank 0 resolves the
// path; the others read that very checkpoint or fail, whatever is saved or removed there meanwhile. What a rank reads is
// verified; where one rank cannot read, all fail alike, and the message names it. Rank 0 writes to `out` whose parameters
// they are, and the notes about them.
absl::Status load_parameters(const TrainConfig& config, const ShardLayout& layout,
                             std::span<float> params, ProcessGroups& groups, std::ostream& out);

}  // namespace muster::trainer
