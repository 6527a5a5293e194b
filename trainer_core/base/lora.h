// LoRA (Hu et al., "Low-rank adaptation of large language models", 2021). The parameters of a
// model, its base, are frozen. Each adapted projection W (out, in) has an adapter: two matrices,
// A (rank, in) and B (out, rank), which are trained. The projection computes
//
//   y = x Wᵀ + (alpha / rank) dropout(x) Aᵀ Bᵀ
//
// A begins with random values and B with zeros, so that training begins with the base. The names of
// projections are those of Hugging Face's Llama, which PEFT's target_modules use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

#include "trainer_core/base/named_values.h"
#include "trainer_core/base/weight_blocks.h"

namespace muster::trainer {

struct ModelConfig;

// The projections that may have adapters, in the order of kLoraTargetNames. A model whose MLP has
// no gate has no gate_proj. The projections of experts have no adapters.
enum class LoraTarget : uint8_t { kQuery, kKey, kValue, kOut, kGate, kUp, kDown };
constexpr ValueNames<7> kLoraTargetNames = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                            "gate_proj", "up_proj", "down_proj"};

// The adapters of a model.
struct LoraConfig {
  int32_t rank = 0;    // 0: no adapters; all parameters are trained
  double alpha = 0;    // lora_alpha
  double dropout = 0;  // dropout rate of the adapters' inputs, in [0, 1)
  // The adapted projections: names of kLoraTargetNames, in their order.
  std::vector<std::string> targets;
  // The type in which the matrices of layers are stored, except routers (QLoRA).
  WeightType weight_type = WeightType::kPlain;

  bool enabled() const { return rank > 0; }
  bool adapts(LoraTarget target) const;
  // Returns the factor of the adapters' outputs.
  double scale() const { return alpha / rank; }

  friend bool operator==(const LoraConfig&, const LoraConfig&) = default;
};

// The shape (out, in) of a projection.
struct ProjectionShape {
  int64_t out = 0;
  int64_t in = 0;
};
ProjectionShape projection_shape(const ModelConfig& model, LoraTarget target);

// Returns the projections of `model` that may have adapters: all, or only those of attention or of
// the MLP.
enum class LoraLayers : uint8_t { kAll, kAttention, kMlp };
std::vector<std::string> lora_targets(const ModelConfig& model, LoraLayers layers);

// Checks the adapters of a model: the rank is at most the smaller dimension of each adapted
// projection, and the model has these projections. Returns InvalidArgument with the key.
absl::Status validate_lora(const ModelConfig& model);

// Returns the model without adapters.
ModelConfig base_of(ModelConfig model);

// Returns the name of `known` that is nearest to the misspelt `name`; "" if none is near.
std::string_view nearest_target(std::string_view name);

}  // namespace muster::trainer
