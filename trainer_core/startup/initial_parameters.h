// The parameters of a run that has no checkpoint of its own: drawn from init_weights_seed, or read
// from load_parameters_path (MaxText's key).
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

// Opens the config's load_parameters_path. Requires that its tensors are those of the config's
// model: InvalidArgument names the first that differs, or the setting that gives the values another
// meaning (no RoPE, norms that add one). The other layout of RoPE's pairs is converted. This, and
// any other difference of the model configs, is a line in `notes`: some are intended, such as a
// longer context.
absl::StatusOr<std::unique_ptr<ParameterSource>> open_initial_parameters(
    const TrainConfig& config, std::vector<std::string>& notes, Verify verify = Verify::kChecksums);

// Draws a rank's flat block of shards from init_weights_seed, in the memory of `ops`. Value i of a
// tensor has the same bits on every mesh and every backend (base/normal_fill.h); in a block of bf16
// it is the fp32 value, rounded. Does not wait for the device.
void draw_parameters(Ops& ops, const TrainConfig& config, const ShardLayout& layout,
                     const Tensor& params);
inline void draw_parameters(Ops& ops, const TrainConfig& config, const ShardLayout& layout,
                            std::span<float> params) {
  draw_parameters(ops, config, layout,
                  Tensor::f32(params.data(), {static_cast<int64_t>(params.size())}));
}

// Reads a rank's flat block of shards, in host memory and the layout's stored type, from
// load_parameters_path. Called by all ranks; each reads only the shards that it stores. Rank 0
// resolves the path; the other ranks read that very checkpoint or fail, whatever is saved or
// removed there meanwhile. Ranks verify what they read; if one fails, all fail with the same error,
// which names it. Rank 0 writes the source of the parameters and its notes to `out`.
absl::Status load_parameters(const TrainConfig& config, const ShardLayout& layout,
                             std::span<float> params, ProcessGroups& groups, std::ostream& out);

}  // namespace muster::trainer
