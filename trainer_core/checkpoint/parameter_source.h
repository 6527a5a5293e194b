// A model's parameters on a disk, whoever has written them: a run of ours, Hugging Face's transformers, or Meta. What
// converts models, begins a training with them or compares them reads each kind through this, one tensor at a time.
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
  std::string folder;    // which files are read; of ours that of one step
  std::string checksum;  // kMuster: of its manifest, hence of all that is in it
  ModelConfig model;
  StoredType stored = StoredType::kF32;  // of most numbers
  int32_t max_position = 0;  // the longest sequence that it is meant for, tokens; 0: unknown
  nlohmann::json token_ids = nlohmann::json::object();  // kHuggingFace: kTokenIdFields
  std::optional<TrainConfig> config;                    // kMuster: of the run that wrote them
  std::vector<std::string> notes;  // what a person should know of how they were understood
};

// Reads are independent: any thread.
class ParameterSource {
 public:
  // `path` is a checkpoint of ours (one step, a folder of them, or a run's folder, of which the newest whole one counts), a
  // Hugging Face folder or a folder of Meta's. Sees to it that every tensor of the model is there with its shape and a type
  // that is read; what the numbers are is not looked at, but for our own checksums: all of them here, or with kSizes those of what is
  // read later. NotFound when nothing of the kind is
  // there, with what was looked for; else the error of the format's own reader.
  static absl::StatusOr<std::unique_ptr<ParameterSource>> open(const std::string& path,
                                                               Verify verify = Verify::kChecksums);
  virtual ~ParameterSource() = default;
  ParameterSource(const ParameterSource&) = delete;
  ParameterSource& operator=(const ParameterSource&) = delete;

  const ParameterDescription& description() const { return description_; }
  // By Hugging Face's names; they cover the model's block.
  const std::vector<HuggingFaceTensor>& tensors() const { return tensors_; }
  int64_t parameters() const;

  // The tensor's numbers in our layout. DataLoss for a file that was damaged, or changed since open().
  virtual absl::Status read(const HuggingFaceTensor& tensor, std::span<float> out) const = 0;
  // What boxes of our parameters hold, in `block` where their offsets say: what a rank stores of the model. Of tensors of which nothing
  // is wanted nothing is read. A tensor that is wanted in part is read into memory of its own, unless the format can do better.
  virtual absl::Status read_boxes(const std::vector<TensorBox>& boxes,
                                  std::span<float> block) const;

 protected:
  explicit ParameterSource(ParameterDescription description);

  const std::vector<ParamSpec>& rows() const { return rows_; }

 private:
  ParameterDescription description_;
  std::vector<ParamSpec> rows_;
  std::vector<HuggingFaceTensor> tensors_;
};

// Every tensor into the model's block.
absl::Status load_parameters(const ParameterSource& source, std::span<float> block);

// The first thing that two models do not have in common, of what a forward pass depends on; by MaxText's keys and in their
// words. What only training or initialisation looks at (dropout, capacity, z-loss …) is no difference, nor are two ways to
// say one thing.
struct ModelDifference {
  std::string key;
  std::string a, b;
};
std::optional<ModelDifference> first_difference(const ModelConfig& a, const ModelConfig& b);

}  // namespace muster::trainer
