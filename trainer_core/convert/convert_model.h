// The command `muster convert`: converts the parameters of a model from the file format of one
// program to that of another. It converts one tensor after the other, so that memory holds one
// tensor, however large the model is.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/parameter_source.h"
#include "trainer_core/convert/expected_model.h"

namespace muster::trainer {

// The file format to write.
enum class ConvertTarget { kMuster, kHuggingFace, kPeft };

// The options of a conversion.
struct ConvertOptions {
  std::string from;  // a path for ParameterSource::open()
  std::string to;    // a path that does not exist, or an empty folder
  // The base of the adapters in `from`, if it is not at the path that they name; otherwise empty.
  std::string base;
  // nullopt: Hugging Face's format if the source is a checkpoint of Muster, otherwise Muster's
  // format.
  std::optional<ConvertTarget> target;
  // kHuggingFace only: the element type to write; nullopt: the type that most elements of the
  // source have.
  std::optional<StoredType> stored;
  // kHuggingFace only: maximum bytes of elements per file; a larger tensor has a file of its own.
  int64_t shard_bytes = 5'000'000'000;
  UnusedTensorPolicy unused = UnusedTensorPolicy::kRefuse;
  std::string tokenizer;  // path of a SentencePiece model; empty: the source's tokenizer
  std::vector<ExpectedValue> expected;      // checked before anything is written
  const std::atomic<bool>* stop = nullptr;  // set to true to cancel
};

// The result of a conversion.
struct ConvertReport {
  ParameterFormat from = ParameterFormat::kMuster;
  ConvertTarget target = ConvertTarget::kMuster;
  std::string from_folder;
  std::string to;
  int64_t parameters = 0;
  StoredType stored = StoredType::kF32;
  uint64_t files = 0;    // number of files with weights
  uint64_t bytes = 0;    // size of these files
  uint64_t rounded = 0;  // elements that the stored type does not represent exactly
  bool has_tokenizer = false;
  TensorAccount tensors;           // the account of the source's tensors
  std::vector<std::string> notes;  // sentences for the user
};

// Receives the number of elements written and their total, on the thread that called convert().
using ConvertProgress = std::function<void(uint64_t done, uint64_t total)>;

// Converts a model. kMuster writes the folder layout of `muster run`: to/checkpoints/0 with
// parameters, but without optimizer state, for load_parameters_path and `muster decode`.
// kHuggingFace writes a folder for `transformers`, and kPeft one of adapters for `peft`; for the
// other targets, adapters are merged into their base. `to` appears only once all its files
// are on disk. Returns the errors of ParameterSource::open, check_expected, export_to_hugging_face
// and NewFolder, and Cancelled after `stop` was set.
absl::StatusOr<ConvertReport> convert(const ConvertOptions& options,
                                      const ConvertProgress& progress);

}  // namespace muster::trainer
