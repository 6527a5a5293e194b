// Converts a model of Muster to an architecture of Hugging Face: its config.json, and the changes
// to the weights with which that architecture computes the same results.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/checkpoint/foreign/hugging_face.h"

namespace muster::trainer {

// The config.json of an exported model and the changes to its weights.
struct HuggingFaceExport {
  nlohmann::ordered_json config;  // contents of config.json, without the dtype
  std::vector<HuggingFaceTensor> tensors;
  // Reorder the rows of queries and keys from interleaved pairs (RoFormer, Pax, Meta) to half-split
  // pairs (rotary_rows.h).
  bool splits_pairs = false;
  int32_t head_dim = 0;
  // Add 1 to the gains of norms that multiply by 1 + gain, for an architecture that multiplies by
  // the gain (MaxText's GPT-3 exported as GPT-2).
  bool adds_one_to_gains = false;

  // Applies these changes in place to the elements of a tensor of Muster's model. Does not convert
  // the layout: `ours` keeps Muster's.
  void adapt(const HuggingFaceTensor& tensor, std::span<float> ours) const;
};

// Returns the export of a model. `max_position` is the longest sequence in tokens; 0: unknown.
// `token_ids` has fields of kTokenIdFields; missing ones are exported as null. Parses the exported
// config again to verify that it gives the same model. Returns InvalidArgument if no known
// architecture supports the model; the error contains the key, its value, and its value in the
// nearest architecture.
absl::StatusOr<HuggingFaceExport> export_to_hugging_face(const ModelConfig& model,
                                                         int32_t max_position,
                                                         const nlohmann::json& token_ids);

}  // namespace muster::trainer
