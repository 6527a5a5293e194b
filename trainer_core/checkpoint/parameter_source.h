// A model's parameters on a disk, in the format of Muster, Hugging Face's transformers, or Meta.
// Conversion, initialisation and comparison read every format through this interface, one tensor at
// a time.
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
#include "trainer_core/checkpoint/hugging_face.h"

namespace muster::trainer {

enum class ParameterFormat { kMuster, kHuggingFace, kMeta };

struct ParameterDescription {
  ParameterFormat format = ParameterFormat::kMuster;
  std::string folder;    // the folder that is read; kMuster: the folder of the step
  std::string checksum;  // kMuster: of the manifest, which covers all data
  ModelConfig model;
  StoredType stored = StoredType::kF32;  // of most elements
  int32_t max_position = 0;  // the longest sequence that it is meant for, tokens; 0: unknown
  nlohmann::json token_ids = nlohmann::json::object();  // kHuggingFace: kTokenIdFields
  std::optional<TrainConfig> config;                    // kMuster: of the run that wrote them
  std::vector<std::string> notes;  // for users: how ambiguous contents were interpreted
  TensorAccount tensors;           // of the files
};

// Reads are independent. Thread-safe.
class ParameterSource {
 public:
  // `path` is a Muster checkpoint (one step, a folder of steps, or a run's folder, of which the
  // newest complete one counts), a Hugging Face folder or a Meta folder. Checks that every tensor
  // of the model exists with its shape and a supported type, and accounts for every other tensor of
  // the files: one that is neither used nor known not to matter is an error, or, with kAllow, a
  // note. Values are not checked. Checksums of
  // a Muster checkpoint are verified: all of them here, or with kSizes when the data is read.
  // NotFound, listing the formats, if the path holds none of them; otherwise the error of the
  // format's reader.
  static absl::StatusOr<std::unique_ptr<ParameterSource>> open(
      const std::string& path, Verify verify = Verify::kChecksums,
      UnusedTensors unused = UnusedTensors::kRefuse);
  virtual ~ParameterSource() = default;
  ParameterSource(const ParameterSource&) = delete;
  ParameterSource& operator=(const ParameterSource&) = delete;

  const ParameterDescription& description() const { return description_; }
  // The tensors by Hugging Face's names; they cover the model's block.
  const std::vector<HuggingFaceTensor>& tensors() const { return tensors_; }
  int64_t parameters() const;

  // Reads the tensor's elements in our layout. DataLoss for a file that was damaged, or changed
  // since open().
  virtual absl::Status read(const HuggingFaceTensor& tensor, std::span<float> out) const = 0;
  // Reads boxes of our parameters into `block` at their offsets: the rank's part of the model.
  // Tensors without boxes are not read. A tensor that is needed in part is read into temporary
  // memory unless the format supports partial reads.
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

// Reads every tensor into the model's block.
absl::Status load_parameters(const ParameterSource& source, std::span<float> block);

// The first difference between two models in what a forward pass depends on, with MaxText's keys
// and values. Fields that only affect training or initialisation (dropout, capacity, z-loss …) and
// equivalent spellings do not count.
struct ModelDifference {
  std::string key;
  std::string a, b;
};
std::optional<ModelDifference> first_difference(const ModelConfig& a, const ModelConfig& b);

}  // namespace muster::trainer
