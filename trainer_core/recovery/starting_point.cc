#include "trainer_core/recovery/starting_point.h"

#include <algorithm>
#include <utility>

#include "trainer_core/checkpoint/adapters.h"
#include "trainer_core/startup/frozen_parameters.h"
#include "trainer_core/startup/initial_parameters.h"
#include "trainer_core/startup/remote_inputs.h"

namespace muster::trainer {
namespace {

// Writes the frozen base of adapters to the memory of the backend, unless it is there already, and
// gives its hash to `checkpoints`.
absl::Status load_frozen(const TrainConfig& config, const TrainContext& context,
                         Checkpointing& checkpoints, RankModel& rank_model) {
  if (!config.model.lora.enabled() || checkpoints.knows_base()) return absl::OkStatus();
  enter_phase(context, Phase::kCompile);
  if (config.load_parameters_path.empty()) {
    draw_base(config, rank_model, context.threads);
    checkpoints.set_base_hash(hash_of_random_base(config.init_weights_seed));
    return absl::OkStatus();
  }
  const auto inputs =
      with_local_parameters(config, context.err, [&] { enter_phase(context, Phase::kCompile); });
  if (!inputs.ok()) return inputs.status();
  auto hash = load_base(*inputs, rank_model, context.threads, context.groups, context.out);
  if (!hash.ok()) return hash.status();
  checkpoints.set_base_hash(*std::move(hash));
  return absl::OkStatus();
}

// Writes load_parameters_path and an empty optimizer state to the memory of the backend.
absl::StatusOr<LoadedParameters> load_all(const TrainConfig& config, const TrainContext& context,
                                          RankModel& rank_model) {
  const ShardLayout& layout = rank_model.plan().model.sharding.layout;
  const CheckpointBlocks state = rank_model.host_state();
  std::ranges::fill(state.state, 0.0F);
  const auto inputs =
      with_local_parameters(config, context.err, [&] { enter_phase(context, Phase::kCompile); });
  if (!inputs.ok()) return inputs.status();
  auto loaded = load_parameters(*inputs, layout, state.params, context.groups, context.out);
  if (loaded.ok()) rank_model.store_state();
  return loaded;
}

// Writes the initial parameters and an empty optimizer state to the memory of the backend. Returns
// what was loaded.
absl::StatusOr<LoadedParameters> begin(const TrainConfig& config, const TrainContext& context,
                                       const std::string& base_hash, RankModel& rank_model) {
  const ShardLayout& layout = rank_model.plan().model.sharding.layout;
  Ops& ops = rank_model.ops();
  const bool adapts = config.model.lora.enabled();
  if (config.dpo.enabled && !adapts) {
    if (context.groups.rank() == 0)
      context.out << "parameters are those of the reference model" << std::endl;
    rank_model.begin_from_reference();
    return LoadedParameters();
  }
  if (config.load_parameters_path.empty() || adapts) {
    const CheckpointBlocks live = rank_model.state();
    if (!live.state.empty()) ops.fill(RankModel::flat(live.state), 0);
    draw_parameters(ops, config, layout, rank_model.model().parameters());
    ops.synchronize();
    if (config.lora_restore_path.empty()) return LoadedParameters();
    return load_adapters(config, base_hash, ops, layout, live.params, context.groups, context.out);
  }
  return load_all(config, context, rank_model);
}

// Sets the parameters of the reference model of preference tuning, unless they are set already: the
// base without adapters, or the initial parameters, whose hash it gives to `checkpoints`.
absl::Status set_reference(const TrainConfig& config, const TrainContext& context,
                           Checkpointing& checkpoints, RankModel& rank_model) {
  if (!config.dpo.enabled || checkpoints.has_reference()) return absl::OkStatus();
  checkpoints.set_has_reference();
  if (config.model.lora.enabled()) {
    rank_model.clear_reference();
    return absl::OkStatus();
  }
  if (config.load_parameters_path.empty()) {
    draw_parameters(rank_model.ops(), config, rank_model.plan().model.sharding.layout,
                    rank_model.model().parameters());
    checkpoints.set_base_hash(hash_of_random_base(config.init_weights_seed));
  } else {
    auto loaded = load_all(config, context, rank_model);
    if (!loaded.ok()) return loaded.status();
    checkpoints.set_base_hash(std::move(loaded->hash));
  }
  rank_model.set_reference();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RestoredAt> restore_or_begin(const TrainConfig& config, const TrainContext& context,
                                            Checkpointing& checkpoints, RankModel& rank_model,
                                            RestoreFrom from) {
  if (auto status = load_frozen(config, context, checkpoints, rank_model); !status.ok())
    return status;
  if (auto status = set_reference(config, context, checkpoints, rank_model); !status.ok())
    return status;
  if (config.enable_checkpointing) enter_phase(context, Phase::kCheckpointRestore);
  const auto newest = checkpoints.restore(from);
  if (!newest.ok()) return newest.status();
  rank_model.parameters_changed();
  enter_phase(context, Phase::kCompile);
  if (newest->has_value()) {
    rank_model.store_state();
    return **newest;
  }
  const auto begun = begin(config, context, checkpoints.base_hash(), rank_model);
  if (!begun.ok()) return begun.status();
  if (!begun->has_scales) rank_model.model().reset_scaling();
  // A training starts at its first step whatever its parameters are; an evaluation reports theirs.
  return RestoredAt{.step = config.only_evaluates() ? begun->steps : 0};
}

}  // namespace muster::trainer
