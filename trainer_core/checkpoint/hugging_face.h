// Models as Hugging Face's transformers saves them: a folder with config.json and model.safetensors, or several files that
// model.safetensors.index.json lists. Families: Llama (with biases, with Llama 3's RoPE), Mistral, Gemma, GPT-2.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/base/model_config.h"
#include "trainer_core/model/param_spec.h"

namespace muster::trainer {

// One of their tensors and where it lies in our flat block: one parameter, or neighbours that they store as one.
struct HuggingFaceTensor {
  std::string
      name;  // "model.layers.0.self_attn.q_proj.weight", "transformer.h.0.attn.c_attn.weight"
  std::vector<int64_t> shape;  // theirs
  int64_t offset = 0;          // in elements
  bool transposed = false;     // theirs is (in, out), ours (out, in): GPT-2's

  int64_t elements() const;
  // Its part of a flat block, in our layout.
  template <class Number>
  std::span<Number> part_of(std::span<Number> block) const {
    return block.subspan(static_cast<size_t>(offset), static_cast<size_t>(elements()));
  }
};

// True when the folder has a config.json.
bool is_hugging_face_folder(const std::string& folder);

// The model that config.json describes. NotFound; InvalidArgument names the field, its value and what would be right:
// another family, a choice that this trainer does not have, sizes that contradict each other.
absl::StatusOr<ModelConfig> read_hugging_face_config(const std::string& folder);

// Their tensors of a model, in the order of our block. A model of GPT-2's architecture has GPT-2's names, all others have
// Llama's.
std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelConfig& model,
                                                    const std::vector<ParamSpec>& table);

// Reads the folder's tensors into the flat block. InvalidArgument names the first one that is missing or has another
// shape (both shapes); DataLoss a damaged file.
absl::Status load_hugging_face(const std::string& folder,
                               const std::vector<HuggingFaceTensor>& tensors,
                               std::span<float> block);

// A tensor of our block in their layout.
std::vector<float> in_their_layout(const HuggingFaceTensor& tensor, std::span<const float> block);

}  // namespace muster::trainer
