// Converts a model to a Hugging Face folder: its config.json, and the changes to the weights with
// which an architecture of Hugging Face computes the same results.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/checkpoint/hugging_face.h"

namespace muster::trainer {

struct HuggingFaceExport {
  nlohmann::ordered_json config;  // without the dtype
  std::vector<HuggingFaceTensor> tensors;
  // Reorders rows of queries and keys from interleaved pairs (RoFormer, Pax, Meta) to half-split
  // ones (rotary_rows.h).
  bool splits_pairs = false;
  int32_t head_dim = 0;
  // Converts norms that multiply by 1 + gain to norms that multiply by the gain (MaxText's GPT-3 as
  // GPT-2).
  bool adds_one_to_gains = false;

  // Converts the tensor's elements in place, from our values to those of the exported model. The
  // layout stays ours.
  void adapt(const HuggingFaceTensor& tensor, std::span<float> ours) const;
};

// `max_position`: the longest sequence, tokens; 0: unknown. `token_ids`: kTokenIdFields; absent
// ones become null. Reads the exported config back, which must give the same model. Returns
// InvalidArgument if it does not, because no known architecture supports the model; the error names
// the key, its value, and the nearest architecture's value.
absl::StatusOr<HuggingFaceExport> export_to_hugging_face(const ModelConfig& model,
                                                         int32_t max_position,
                                                         const nlohmann::json& token_ids);

}  // namespace muster::trainer
