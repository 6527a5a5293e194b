#include "trainer_core/startup/fitting_changes.h"

#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/absl_view.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::trainer {
namespace {

constexpr auto kFsdpAxis = static_cast<size_t>(MeshAxis::kFsdp);

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
         {smaller_batch(config_), other_remat(config_), more_fsdp(config_),
          without("async_checkpointing", &TrainConfig::async_checkpointing),
          without("enable_emergency_checkpoint", &TrainConfig::enable_emergency_checkpoint)})
      if (change) found.push_back(change->keys);
    return found;
  }
  std::optional<std::string> together() const {
    TrainConfig least = config_;
    least.per_device_batch_size = config_.pipeline_microbatches;
    least.remat_policy = RematPolicy::kFull;
    if (!validate(least).ok()) return std::nullopt;
    const std::string keys = absl::StrCat(batch_key(least), " remat_policy=full");
    if (fits(least)) return keys;
    if (const auto more = more_fsdp(least)) return absl::StrCat(keys, " ", more->keys);
    const bool stages = least.async_checkpointing;
    least.async_checkpointing = false;
    return stages && fits(least) ? std::optional(keys + " async_checkpointing=False")
                                 : std::nullopt;
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
  // The present ranks remain ranks of the wider mesh, and the first of several stages stays first.
  std::optional<Change> more_fsdp(const TrainConfig& config) const {
    for (int32_t times = 2; fsdp_ == Fsdp::kMoreInNode && times <= kFsdpTimesMax; times *= 2) {
      TrainConfig wider = config;
      wider.mesh.ici[kFsdpAxis] *= times;
      if (!fits(wider)) continue;
      return Change{wider, absl::StrFormat("ici_fsdp_parallelism=%d (%d ranks)",
                                           wider.mesh.ici[kFsdpAxis], mesh_of(wider.mesh).ranks())};
    }
    return std::nullopt;
  }
  // Both keys take memory for checkpoints beside the training's.
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

FittingChanges fitting_changes(const TrainConfig& config, Fsdp fsdp, size_t limit,
                               const std::function<size_t(const TrainConfig&)>& needed) {
  const Search search(config, fsdp, limit, needed);
  FittingChanges changes{.alone = search.alone(), .together = std::nullopt};
  if (changes.alone.empty()) changes.together = search.together();
  return changes;
}

std::string list_of(const FittingChanges& changes) {
  if (changes.alone.empty() && !changes.together) return "";
  std::string list = changes.together ? "what would fit:\n" : "what would fit, each by itself:\n";
  for (const std::string& change : changes.alone) absl::StrAppend(&list, "  ", change, "\n");
  if (changes.together) absl::StrAppend(&list, "  ", *changes.together, "\n");
  return list;
}

}  // namespace muster::trainer
