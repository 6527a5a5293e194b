// Models in the format of Hugging Face's transformers: a folder with config.json and
// model.safetensors, or several files that model.safetensors.index.json lists. Families: Llama
// (with biases, with Llama 3's RoPE), Mistral, Mixtral, Gemma, GPT-2.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/base/model_config.h"
#include "trainer_core/checkpoint/stored_tensor.h"
#include "trainer_core/checkpoint/tensor_account.h"
#include "trainer_core/model/param_spec.h"

namespace muster::trainer {

class ParameterSource;

constexpr char kHuggingFaceConfigFile[] = "config.json";
constexpr char kHuggingFaceIndexFile[] = "model.safetensors.index.json";
constexpr char kHuggingFaceSingleFile[] = "model.safetensors";
// The supported families of config.json, for error messages.
constexpr char kHuggingFaceFamilies[] = "Llama, Mistral, Mixtral, Gemma and GPT-2";

// One of their tensors and its part of our flat block: one parameter, or neighbours that they store
// as one tensor.
struct HuggingFaceTensor {
  std::string
      name;  // "model.layers.0.self_attn.q_proj.weight", "transformer.h.0.attn.c_attn.weight"
  std::vector<int64_t> shape;  // theirs
  int64_t offset = 0;          // in elements
  bool transposed = false;     // theirs is (in, out), ours (out, in): GPT-2's

  int64_t elements() const;
  // Returns the tensor's part of a flat block, in our layout.
  template <class Number>
  std::span<Number> part_of(std::span<Number> block) const {
    return block.subspan(static_cast<size_t>(offset), static_cast<size_t>(elements()));
  }
};

// Returns the tensors of a model in the order of our block, which they cover. A model of GPT-2's
// architecture has GPT-2's names, all others have Llama's, or Mixtral's in layers with experts.
std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelConfig& model,
                                                    const std::vector<ParamSpec>& table);

// Convert a tensor's elements from their layout to ours, and back.
void to_our_layout(const HuggingFaceTensor& tensor, std::span<const float> theirs,
                   std::span<float> ours);
std::vector<float> in_their_layout(const HuggingFaceTensor& tensor, std::span<const float> ours);

// The fields of config.json and generation_config.json with ids that generate() reads; a value is
// an id, a list of ids or null.
constexpr const char* kTokenIdFields[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

// The contents of config.json.
struct HuggingFaceConfig {
  ModelConfig model;
  int32_t max_position = 0;        // max_position_embeddings; 0: not stated
  nlohmann::json token_ids;        // those of kTokenIdFields that it has
  std::vector<std::string> notes;  // for users: how ambiguous fields were interpreted
};

// Returns the fields of kTokenIdFields in an object that have valid values.
nlohmann::json token_ids_of(const nlohmann::json& object);

// Returns NotFound, or InvalidArgument naming the field, its value and the allowed values: another
// family, an unsupported choice, contradictory sizes.
absl::StatusOr<HuggingFaceConfig> read_hugging_face_config(const std::string& folder);
absl::StatusOr<HuggingFaceConfig> parse_hugging_face_config(const nlohmann::json& config);

// Opens the folder's weights. Returns the errors of read_hugging_face_config; InvalidArgument
// naming the first tensor that is missing, has another shape (both shapes) or an unsupported type,
// or the tensors that the model does not use (check_unused()); NotFound naming the files that the
// index has and the folder has not; DataLoss for a damaged file.
absl::StatusOr<std::unique_ptr<ParameterSource>> open_hugging_face(
    const std::string& folder, UnusedTensors unused = UnusedTensors::kRefuse);

}  // namespace muster::trainer
