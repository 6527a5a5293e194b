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

namespace muster::trainer {

// The config's load_parameters_path, whose tensors are those of the config's model. InvalidArgument names the first that is not, or
// the choice that makes the numbers mean something else (another layout of RoPE's pairs, norms that add one). Any other
// difference of what the models compute is a line in `notes`: some are wanted, as a longer context is.
absl::StatusOr<std::unique_ptr<ParameterSource>> open_initial_parameters(
    const TrainConfig& config, std::vector<std::string>& notes, Verify verify = Verify::kChecksums);

// Fills a rank's flat block of shards: it makes, or reads, what it stores, and no more. All ranks call it. What the path means is rank
// 0's to find out: others read that very checkpoint, or none, whatever is saved or removed there meanwhile. What a rank reads is
// verified; where one cannot read all fail alike, and the sentence names it. Rank 0 mentions in `out` whose parameters they are, with
// what is to be said of them.
absl::Status begin_parameters(const TrainConfig& config, const ShardLayout& layout,
                              std::span<float> params, ProcessGroups& groups, std::ostream& out);

}  // namespace muster::trainer
