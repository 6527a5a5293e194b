// Adapters in the format of Hugging Face's library PEFT: a folder with adapter_config.json, and
// adapter_model.safetensors whose tensors are named
// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" (rank, in) and "….lora_B.weight"
// (out, rank).
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/model_config.h"

namespace muster::trainer {

struct Adapters;

constexpr char kPeftConfigFile[] = "adapter_config.json";
constexpr char kPeftWeightsFile[] = "adapter_model.safetensors";

// Returns whether a folder has an adapter_config.json.
bool is_peft_folder(const std::string& path);

// Returns base_model_name_or_path, as an absolute path if it is a folder relative to the adapters.
// Returns NotFound if the config names no base.
absl::StatusOr<std::string> base_of_peft_folder(const std::string& folder);

// Reads the adapters of a folder for a base with this model. Returns InvalidArgument with the field
// of the config that is not supported, with the first tensor that is missing, unknown (and the
// nearest name) or of another shape than the base requires.
absl::StatusOr<Adapters> read_peft_folder(const std::string& folder, const ModelConfig& base);

// Writes adapters to `folder`, which must exist. `base` is the path or name of the base in Hugging
// Face's format. Returns the bytes of the weights.
absl::StatusOr<uint64_t> write_peft_folder(const Adapters& adapters, const std::string& base,
                                           const std::string& folder);

}  // namespace muster::trainer
