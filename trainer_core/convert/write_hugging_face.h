// Writes a model's parameters as the weights of a Hugging Face folder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/hugging_face_export.h"
#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {

struct WrittenWeights {
  uint64_t files = 0;
  uint64_t bytes = 0;
  uint64_t rounded = 0;  // elements that the stored type does not represent exactly
};

// Called before each tensor with the elements written so far; an error ends the work.
using BeforeTensor = std::function<absl::Status(int64_t done)>;

// Writes config.json and model.safetensors (or, beyond `shard_bytes`,
// model-00001-of-0000N.safetensors and their index) into an existing folder, and syncs each file.
// InvalidArgument names a value beyond the type's range.
absl::StatusOr<WrittenWeights> write_hugging_face(const ParameterSource& source,
                                                  const HuggingFaceExport& exported,
                                                  StoredType stored, int64_t shard_bytes,
                                                  const std::string& folder,
                                                  const BeforeTensor& before);

}  // namespace muster::trainer
