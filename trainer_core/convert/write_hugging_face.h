// Writes the parameters of a model as the weights of a Hugging Face folder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/foreign/hugging_face_export.h"
#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {

// The files that were written.
struct WrittenWeights {
  uint64_t files = 0;    // number of files with weights
  uint64_t bytes = 0;    // size of these files
  uint64_t rounded = 0;  // elements that the stored type does not represent exactly
};

// Called before each tensor, with the number of elements written so far. If it returns an error,
// the writer stops and returns the error.
using BeforeTensor = std::function<absl::Status(int64_t done)>;

// Writes config.json and model.safetensors into an existing folder and syncs each file. If the
// weights have more than `shard_bytes`, writes model-00001-of-0000N.safetensors, … and their index
// instead. Returns InvalidArgument with the value if an element is outside the range of `stored`.
absl::StatusOr<WrittenWeights> write_hugging_face(const ParameterSource& source,
                                                  const HuggingFaceExport& exported,
                                                  StoredType stored, int64_t shard_bytes,
                                                  const std::string& folder,
                                                  const BeforeTensor& before);

}  // namespace muster::trainer
