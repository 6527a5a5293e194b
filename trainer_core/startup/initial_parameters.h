// The initial parameters of a run that has no checkpoint yet: random values from init_weights_seed,
// or parameters from load_parameters_path (MaxText's key).
#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/checkpoint/parameter_source.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/model/shard_layout.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// Opens the load_parameters_path of a config. Returns InvalidArgument with the first tensor that
// differs from the config's model, or with a setting that gives the values another meaning (no
// RoPE, norms that add 1 to the gain). Converts the layout of RoPE's pairs if it differs. Adds a
// line to `notes` for this conversion and for any other difference between the model configs,
// because some differences are intended, such as a longer context.
absl::StatusOr<std::unique_ptr<ParameterSource>> open_initial_parameters(
    const TrainConfig& config, std::vector<std::string>& notes, Verify verify = Verify::kChecksums);

// Fills a rank's flat block of shards, in the memory of `ops`, with random values from
// init_weights_seed. Value i of a tensor has the same bits on every mesh and every backend
// (base/normal_fill.h); in bf16 it is the fp32 value, rounded. Does not wait for the device.
void draw_parameters(Ops& ops, const TrainConfig& config, const ShardLayout& layout,
                     const Tensor& params);
inline void draw_parameters(Ops& ops, const TrainConfig& config, const ShardLayout& layout,
                            std::span<float> params) {
  draw_parameters(ops, config, layout,
                  Tensor::f32(params.data(), {static_cast<int64_t>(params.size())}));
}

// Describes load_parameters_path, equally on all ranks.
struct LoadedParameters {
  // Steps of the training that saved the checkpoint; 0 for other formats.
  int64_t steps = 0;
  // Whether the scales of delayed scaling were loaded, too.
  bool has_scales = false;
  // The result of hash_of_base() (checkpoint/adapters.h) for the base of adapters, or for a
  // reference model; otherwise empty.
  std::string hash;
};

// Reads a rank's flat block of shards, in the layout's stored type, from load_parameters_path into
// host memory. An evaluation without training also reads the scales of delayed scaling
// (model/scaling_state.h), which follow the shards in `params`, if the training has saved some.
// Called by all ranks; each reads and verifies only the shards that it stores. Rank 0 resolves the
// path, and the other ranks read the same checkpoint or fail, even if checkpoints are saved or
// removed meanwhile. If a rank fails, all ranks return the same error, which has this rank. Rank 0
// writes the source of the parameters and its notes to `out`.
absl::StatusOr<LoadedParameters> load_parameters(const TrainConfig& config,
                                                 const ShardLayout& layout, std::span<float> params,
                                                 ProcessGroups& groups, std::ostream& out);

// Does the same, but calls `read` with the opened source on each rank.
absl::StatusOr<LoadedParameters> read_parameters(
    const TrainConfig& config, absl::FunctionRef<absl::Status(const ParameterSource&)> read,
    ProcessGroups& groups, std::ostream& out);

// Writes a rank's shards of the adapters at lora_restore_path to `params` in the memory of `ops`,
// with the scales of delayed scaling as load_parameters() does. Called by all ranks; each reads all
// adapters. Rank 0 resolves the path, and the other ranks read the same adapters or fail. Returns
// an error if they have another rank, other targets or another scale, or are of another base:
// `base_hash` is the hash of this run's base, empty if it is unknown.
absl::StatusOr<LoadedParameters> load_adapters(const TrainConfig& config,
                                               const std::string& base_hash, Ops& ops,
                                               const ShardLayout& layout, std::span<float> params,
                                               ProcessGroups& groups, std::ostream& out);
// Returns the errors of load_adapters(); OK without lora_restore_path.
absl::Status check_adapters(const TrainConfig& config, const std::string& base_hash);

}  // namespace muster::trainer
