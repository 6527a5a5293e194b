// The parameters of a model on disk, in the format of Muster, of Hugging Face's transformers, or of
// Meta. Conversion, initialisation and comparison read all formats through this interface, one
// tensor at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/checkpoint/find_checkpoint.h"
#include "trainer_core/checkpoint/foreign/hugging_face.h"

namespace muster::trainer {

// The formats of stored parameters.
enum class ParameterFormat { kMuster, kHuggingFace, kMeta };

// The description of stored parameters.
struct ParameterDescription {
  ParameterFormat format = ParameterFormat::kMuster;
  std::string folder;    // the folder that is read; kMuster: the folder of the step
  std::string checksum;  // kMuster: that of the manifest, which covers all data; PEFT's: empty
  std::string tokenizer_folder = {};  // the folder of the tokenizer; empty: `folder`
  int64_t steps = 0;                  // kMuster: the completed steps of the training that saved it
  ModelConfig model;
  StoredType stored = StoredType::kF32;  // the type of most elements
  int32_t max_position = 0;              // longest sequence of the model, tokens; 0: unknown
  nlohmann::json token_ids = nlohmann::json::object();  // kHuggingFace: kTokenIdFields
  std::optional<TrainConfig> config;                    // kMuster: the config of the training
  std::vector<std::string> notes;  // sentences for users about ambiguous contents
  TensorAccount tensors;           // the account of the tensors in the files
  bool is_merged = false;          // the folder has adapters, and the values those of its base, too
};

// An opened set of parameters. Thread-safe; reads are independent of each other.
class ParameterSource {
 public:
  // Opens a checkpoint of Muster, a Hugging Face folder, a Meta folder, or adapters, which are
  // merged into their base (adapters.h). For Muster, `path` is the folder of a step, or a folder
  // whose newest complete checkpoint is opened (find_checkpoint).
  // Checks that every tensor of the model exists and has the expected shape and a supported type;
  // does not check values. Every other tensor of the files must be known as one that may be
  // ignored; otherwise it is an error, or with kAllow a note. `verify` determines when checksums of
  // a Muster checkpoint are verified: kChecksums: now; kSizes: when data is read. Returns NotFound
  // with the supported formats if `path` has none of them, and otherwise the error of the format's
  // reader.
  static absl::StatusOr<std::unique_ptr<ParameterSource>> open(
      const std::string& path, Verify verify = Verify::kChecksums,
      UnusedTensorPolicy unused = UnusedTensorPolicy::kRefuse);
  virtual ~ParameterSource() = default;
  ParameterSource(const ParameterSource&) = delete;
  ParameterSource& operator=(const ParameterSource&) = delete;

  const ParameterDescription& description() const { return description_; }
  // Returns the tensors, with the names of Hugging Face. Together they have all elements of the
  // model.
  const std::vector<HuggingFaceTensor>& tensors() const { return tensors_; }
  // Returns the number of elements of all tensors.
  int64_t parameters() const;

  // Reads the elements of a tensor in the layout of Muster. Returns DataLoss if the file is
  // damaged, or was changed since open().
  virtual absl::Status read(const HuggingFaceTensor& tensor, std::span<float> out) const = 0;
  // Reads boxes of Muster's parameters, such as a rank's shards, into `block` at their offsets.
  // Values of a bf16 box are rounded to nearest, ties to even; two of them share a float of the
  // block. Does not read tensors without boxes. Reads a tensor completely into temporary memory if
  // only a part is requested and the format does not support partial reads.
  virtual absl::Status read_boxes(const std::vector<TensorBox>& boxes,
                                  std::span<float> block) const;

 protected:
  explicit ParameterSource(ParameterDescription description);

  const std::vector<ParamSpec>& rows() const { return rows_; }
  // For sources that count tensors once they are open.
  void set_account(TensorAccount account) { description_.tensors = std::move(account); }
  std::vector<std::string>& mutable_notes() { return description_.notes; }

 private:
  ParameterDescription description_;
  std::vector<ParamSpec> rows_;
  std::vector<HuggingFaceTensor> tensors_;
};

// Reads all tensors into a flat block of the model. Requires that the block is large enough.
absl::Status load_parameters(const ParameterSource& source, std::span<float> block);

// A key whose values differ between two models, with MaxText's names.
struct ModelDifference {
  std::string key;
  std::string a, b;
};
// Returns the first difference between two models that changes the results of a forward pass.
// Ignores fields that affect only training or initialisation (dropout, capacity, z-loss …), and
// different spellings of the same model.
std::optional<ModelDifference> first_difference(const ModelConfig& a, const ModelConfig& b);

}  // namespace muster::trainer
