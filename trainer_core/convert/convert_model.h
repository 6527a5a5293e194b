// `muster convert`: converts a model from one program's files to another's, tensor by tensor, so
// that memory holds one tensor at a time however large the model is.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {

enum class ConvertTarget { kMuster, kHuggingFace };

struct ConvertOptions {
  std::string from;  // as for ParameterSource::open()
  std::string to;    // must not exist, or be an empty folder
  // nullopt: Hugging Face's format for a checkpoint of Muster, Muster's for anything else.
  std::optional<ConvertTarget> target;
  // For kHuggingFace. nullopt: the type of most of the source's elements.
  std::optional<StoredType> stored;
  // For kHuggingFace: bytes of elements per file; a larger tensor has its own file.
  int64_t shard_bytes = 5'000'000'000;
  UnusedTensors unused = UnusedTensors::kRefuse;
  std::string tokenizer;  // a SentencePiece model; empty: the tokenizer beside the source
  const std::atomic<bool>* stop = nullptr;  // set to true to cancel
};

struct ConvertReport {
  ParameterFormat from = ParameterFormat::kMuster;
  ConvertTarget target = ConvertTarget::kMuster;
  std::string from_folder;
  std::string to;
  int64_t parameters = 0;
  StoredType stored = StoredType::kF32;
  uint64_t files = 0;    // of weights
  uint64_t bytes = 0;    // of weights
  uint64_t rounded = 0;  // elements that the stored type does not represent exactly
  bool has_tokenizer = false;
  TensorAccount tensors;  // of the source
  std::vector<std::string> notes;
};

// Receives the elements written and their total, on the thread that called convert().
using ConvertProgress = std::function<void(uint64_t done, uint64_t total)>;

// Converts a model. kMuster writes the layout of a run of `muster run`: to/checkpoints/0, with
// parameters and no optimizer state, for load_parameters_path and `muster decode`. kHuggingFace
// writes a folder for transformers. `to` appears only once everything in it is on the disk. Errors
// are those of ParameterSource::open, export_to_hugging_face and NewFolder; Cancelled after `stop`.
absl::StatusOr<ConvertReport> convert(const ConvertOptions& options,
                                      const ConvertProgress& progress);

}  // namespace muster::trainer
