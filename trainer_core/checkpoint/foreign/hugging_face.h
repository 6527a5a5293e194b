// Models in the format of Hugging Face's library transformers: a folder with config.json and
// model.safetensors, or with several files that model.safetensors.index.json lists. The supported
// families are Llama (also with biases, and with Llama 3's RoPE), Mistral, Mixtral, Gemma and
// GPT-2. In this file, "theirs" means Hugging Face's format and "ours" the flat block of Muster.
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

// A tensor of Hugging Face, and its part of our flat block: one parameter, or several adjacent
// parameters that Hugging Face stores as one tensor.
struct HuggingFaceTensor {
  // "model.layers.0.self_attn.q_proj.weight", "transformer.h.0.attn.c_attn.weight"
  std::string name;
  std::vector<int64_t> shape;  // in their format
  int64_t offset = 0;          // in our flat block, in elements
  bool transposed = false;     // theirs is (in, out), ours is (out, in), as in GPT-2

  int64_t elements() const;
  // Returns the part of a flat block of ours that belongs to this tensor.
  template <class Number>
  std::span<Number> part_of(std::span<Number> block) const {
    return block.subspan(static_cast<size_t>(offset), static_cast<size_t>(elements()));
  }
};

// Returns the tensors of a model, in the order of our flat block, which they cover completely. A
// model with the architecture of GPT-2 has the names of GPT-2; all others have those of Llama, or
// of Mixtral in layers with experts.
std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelConfig& model,
                                                    const std::vector<ParamSpec>& table);

// Convert the elements of a tensor from their layout to ours, and back.
void to_our_layout(const HuggingFaceTensor& tensor, std::span<const float> theirs,
                   std::span<float> ours);
std::vector<float> in_their_layout(const HuggingFaceTensor& tensor, std::span<const float> ours);

// The fields of config.json and generation_config.json that have token ids for transformers'
// generate(). A value is an id, a list of ids or null.
constexpr const char* kTokenIdFields[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

// The contents of config.json.
struct HuggingFaceConfig {
  ModelConfig model;
  int32_t max_position = 0;        // max_position_embeddings, tokens; 0: not stated
  nlohmann::json token_ids;        // the fields of kTokenIdFields that exist
  std::vector<std::string> notes;  // for users: how ambiguous fields were interpreted
};

// Returns those fields of `object` that are in kTokenIdFields and have valid values.
nlohmann::json token_ids_of(const nlohmann::json& object);

// Read config.json from a folder, or parse its contents. Return NotFound, or InvalidArgument with
// the field, its value and the allowed values if the family or a choice is not supported or sizes
// contradict each other.
absl::StatusOr<HuggingFaceConfig> read_hugging_face_config(const std::string& folder);
absl::StatusOr<HuggingFaceConfig> parse_hugging_face_config(const nlohmann::json& config);

// Opens the weights of a folder. Returns the errors of read_hugging_face_config(); InvalidArgument
// with the first tensor that is missing, has another shape (with both shapes) or an unsupported
// type, or with the tensors that the model does not use (check_unused()); NotFound with the files
// that the index names and the folder lacks; DataLoss for a damaged file.
absl::StatusOr<std::unique_ptr<ParameterSource>> open_hugging_face(
    const std::string& folder, UnusedTensorPolicy unused = UnusedTensorPolicy::kRefuse);

}  // namespace muster::trainer
