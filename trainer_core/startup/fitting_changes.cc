#include "trainer_core/startup/fitting_changes.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/text/absl_view.h"
#include "common/text/number_text.h"
#include "common/text/with_commas.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/model/param_spec.h"

namespace muster::trainer {
namespace {

constexpr auto kFsdpAxis = static_cast<size_t>(MeshAxis::kFsdp);
constexpr auto kDataAxis = static_cast<size_t>(MeshAxis::kData);
// Most nodes have at most as many devices, so more ranks are on more nodes.
constexpr int32_t kDevicesOfNode = 8;
// Bounds the number of plans of a suggestion with more nodes.
constexpr int32_t kRanksMax = 128;
// The width of the smallest model that is suggested.
constexpr int32_t kWidthMin = 64;

// A config that fits, and the keys that a user sets for it.
struct Change {
  TrainConfig config;
  std::string keys;
};

// The key counts sequences per rank; the config holds those of all ranks that share a slice.
std::string batch_key(const TrainConfig& config) {
  return absl::StrFormat(
      "per_device_batch_size=%g",
      static_cast<double>(config.per_device_batch_size) / ranks_of_slice(mesh_of(config.mesh)));
}

class Search {
 public:
  Search(const TrainConfig& config, Fsdp fsdp, size_t limit,
         const std::function<size_t(const TrainConfig&)>& needed)
      : config_(config), fsdp_(fsdp), limit_(limit), needed_(needed) {}

  std::vector<std::string> alone() const {
    std::vector<std::string> found;
    for (const auto& change :
         {smaller_batch(config_), other_remat(config_), fsdp_for_data(config_), more_fsdp(config_),
          without("async_checkpointing", &TrainConfig::async_checkpointing),
          without("enable_emergency_checkpoint", &TrainConfig::enable_emergency_checkpoint)})
      if (change) found.push_back(change->keys);
    return found;
  }
  std::vector<std::string> together() const {
    TrainConfig least = config_;
    least.per_device_batch_size = config_.pipeline_microbatches;
    least.remat_policy = RematPolicy::kFull;
    if (!validate(least).ok()) return {};
    std::string keys = absl::StrCat(batch_key(least), " remat_policy=full");
    if (fits(least)) return {keys};
    std::vector<std::string> found;
    const auto add = [&](const std::optional<Change>& change) {
      if (change) found.push_back(absl::StrCat(keys, " ", change->keys));
    };
    add(more_fsdp(least));
    switch_off("async_checkpointing", &TrainConfig::async_checkpointing, least, keys);
    switch_off("enable_emergency_checkpoint", &TrainConfig::enable_emergency_checkpoint, least,
               keys);
    if (fits(least)) {
      found.push_back(keys);
      return found;
    }
    if (found.empty()) add(more_fsdp(least));
    add(shorter(least));
    add(smaller_model(least));
    if (!found.empty() || least.max_target_length <= kSuggestedLengthMin) return found;
    least.max_target_length = kSuggestedLengthMin;
    absl::StrAppend(&keys, " max_target_length=", least.max_target_length);
    add(smaller_model(least));
    return found;
  }

 private:
  bool fits(const TrainConfig& config) const {
    return validate(config).ok() && needed_(config) <= limit_;
  }

  std::optional<Change> smaller_batch(TrainConfig config) const {
    while (config.per_device_batch_size > 1) {
      config.per_device_batch_size /= 2;
      if (!fits(config)) continue;
      const int32_t times = config_.per_device_batch_size / config.per_device_batch_size;
      return Change{config,
                    absl::StrFormat("%s (with gradient_accumulation_steps=%d nearly as many "
                                    "sequences are in a step)",
                                    batch_key(config), times * config.gradient_accumulation_steps)};
    }
    return std::nullopt;
  }
  // Chooses the policy that retains most among those that fit.
  std::optional<Change> other_remat(TrainConfig config) const {
    std::optional<Change> best;
    size_t most = 0;
    for (size_t i = 0; i < kRematPolicyNames.size(); ++i) {
      config.remat_policy = static_cast<RematPolicy>(i);
      if (config.remat_policy == RematPolicy::kCustom ||
          config.remat_policy == config_.remat_policy || !fits(config))
        continue;
      const size_t bytes = needed_(config);
      if (bytes <= most) continue;
      most = bytes;
      best = Change{config, absl::StrCat("remat_policy=", av(kRematPolicyNames[i]))};
    }
    return best;
  }
  // Shards the state over the ranks that now have copies of it.
  std::optional<Change> fsdp_for_data(TrainConfig config) const {
    std::string keys;
    const auto move = [&](const char* level, std::array<int32_t, kMeshAxisCount>& degrees) {
      if (degrees[kDataAxis] == 1) return;
      degrees[kFsdpAxis] *= std::exchange(degrees[kDataAxis], 1);
      absl::StrAppend(&keys, keys.empty() ? "" : " ", level, "_data_parallelism=1 ", level,
                      "_fsdp_parallelism=", degrees[kFsdpAxis]);
    };
    move("ici", config.mesh.ici);
    if (!keys.empty() && fits(config)) return Change{config, keys};
    move("dcn", config.mesh.dcn);
    if (keys.empty() || !fits(config)) return std::nullopt;
    return Change{config, keys};
  }
  // The present ranks remain ranks of the wider mesh, and the first of several stages stays first.
  std::optional<Change> more_fsdp(const TrainConfig& config) const {
    const Mesh present = mesh_of(config.mesh);
    for (int32_t times = 2; times <= kFsdpTimesMax; times *= 2) {
      const bool in_node = fsdp_ == Fsdp::kMoreInNode && present.nodes() == 1 &&
                           present.ranks() * times <= kDevicesOfNode;
      TrainConfig wider = config;
      (in_node ? wider.mesh.ici : wider.mesh.dcn)[kFsdpAxis] *= times;
      if (!validate(wider).ok()) continue;
      const Mesh mesh = mesh_of(wider.mesh);
      if (fsdp_ == Fsdp::kMoreNodes && mesh.ranks() > kRanksMax) break;
      if (!fits(wider)) continue;
      return Change{wider, in_node ? absl::StrFormat("ici_fsdp_parallelism=%d (%d ranks)",
                                                     wider.mesh.ici[kFsdpAxis], mesh.ranks())
                                   : absl::StrFormat("dcn_fsdp_parallelism=%d (%d nodes)",
                                                     wider.mesh.dcn[kFsdpAxis], mesh.nodes())};
    }
    return std::nullopt;
  }
  std::optional<Change> shorter(TrainConfig config) const {
    while (config.max_target_length / 2 >= kSuggestedLengthMin) {
      config.max_target_length /= 2;
      if (fits(config))
        return Change{config, absl::StrCat("max_target_length=", config.max_target_length)};
    }
    return std::nullopt;
  }
  // Halves the layers, and then the widths of the last one. These are no keys: a model's name fixes
  // them.
  std::optional<Change> smaller_model(TrainConfig config) const {
    ModelConfig& model = config.model;
    while (model.num_layers > 1) {
      model.num_layers /= 2;
      if (fits(config)) return with_model(config);
    }
    while (model.emb_dim / 2 >= kWidthMin) {
      model.emb_dim /= 2;
      model.mlp_dim = std::max(model.mlp_dim / 2, 1);
      model.num_query_heads = std::max(model.num_query_heads / 2, 1);
      model.num_kv_heads = std::min(model.num_kv_heads, model.num_query_heads);
      if (fits(config)) return with_model(config);
    }
    return std::nullopt;
  }
  Change with_model(const TrainConfig& config) const {
    const auto parameters = parameter_count(model_params(config.model));
    return {config,
            absl::StrFormat("with a model of %s of width %d (%s parameters)",
                            counted(static_cast<uint64_t>(config.model.num_layers), "layer"),
                            config.model.emb_dim, with_commas(parameters))};
  }
  // Both keys take memory for checkpoints beside the training's.
  static void switch_off(std::string_view key, bool TrainConfig::*field, TrainConfig& config,
                         std::string& keys) {
    if (std::exchange(config.*field, false)) absl::StrAppend(&keys, " ", av(key), "=False");
  }
  std::optional<Change> without(std::string_view key, bool TrainConfig::*field) const {
    TrainConfig config = config_;
    if (!(config.*field)) return std::nullopt;
    config.*field = false;
    if (!fits(config)) return std::nullopt;
    return Change{std::move(config), absl::StrCat(av(key), "=False")};
  }

  const TrainConfig& config_;
  const Fsdp fsdp_;
  const size_t limit_;
  const std::function<size_t(const TrainConfig&)>& needed_;
};

}  // namespace

std::vector<std::string> fitting_changes(const TrainConfig& config, Fsdp fsdp, size_t limit,
                                         const std::function<size_t(const TrainConfig&)>& needed) {
  const Search search(config, fsdp, limit, needed);
  std::vector<std::string> changes = search.alone();
  // Other machines or devices may not be at hand.
  const bool needs_more_ranks = std::ranges::all_of(changes, [](const std::string& keys) {
    return absl::StrContains(keys, " ranks)") || absl::StrContains(keys, " nodes)");
  });
  if (!needs_more_ranks) return changes;
  for (std::string& keys : search.together())
    if (std::ranges::find(changes, keys) == changes.end()) changes.push_back(std::move(keys));
  return changes;
}

std::string list_of(const std::vector<std::string>& changes) {
  if (changes.empty()) return "";
  std::string list =
      changes.size() == 1 ? "what would fit:\n" : "what would fit, each by itself:\n";
  for (const std::string& change : changes) absl::StrAppend(&list, "  ", change, "\n");
  return list;
}

}  // namespace muster::trainer
