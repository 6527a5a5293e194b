// Adapters on disk (base/lora.h): in a checkpoint of a run with lora_rank, which has the adapters
// alone and names its base, or in a folder of PEFT (foreign/peft_folder.h). A folder of adapters is
// also a source of parameters: those of the base with the adapters merged into it,
// W + (alpha / rank) B A. So everything that reads a model, such as `muster convert`, decoding and
// load_parameters_path, reads a folder of adapters in the same way.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/manifest.h"
#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {

// The adapters of a model.
struct Adapters {
  std::string folder;         // a checkpoint's folder, or PEFT's
  std::string checksum = {};  // that of the checkpoint's manifest; empty: a folder of PEFT
  int64_t steps = 0;          // the completed steps of the training that saved the checkpoint
  std::string base;           // path of the base; empty: random parameters of `seed`, or not stated
  std::string base_hash;      // hash_of_base(); empty: unknown
  ModelConfig model;          // the base's, with `lora` set
  std::vector<ParamSpec> table;  // the matrices A and B
  std::vector<float> values;     // at the offsets of `table`

  // Returns a matrix, for example "model.layers.0.self_attn.q_proj" and 'A'.
  std::span<const float> matrix(const std::string& module, char which) const;
};

// Returns the hash by which adapters recognize their base: of the names and shapes of all tensors,
// and the values of all vectors and of the last layer. Equal for all formats of the same values.
absl::StatusOr<std::string> hash_of_base(const ParameterSource& base);
// Returns the same for random parameters.
std::string hash_of_random_base(uint64_t seed);

// Checks that adapters in `folder`, of the model `adapted`, are for a base with these shapes.
// Returns InvalidArgument with the first tensor that differs. `path` names the base.
absl::Status check_shapes(const std::string& folder, const ModelConfig& adapted,
                          const ModelConfig& base, const std::string& path);
// Checks also the hash of the base, and returns InvalidArgument with both hashes if they differ.
absl::Status check_base(const Adapters& adapters, const ModelConfig& base, const std::string& hash,
                        const std::string& path);

// Opens the adapters of a checkpoint or of a PEFT folder, and reads all of their values. `base` is
// the model that they are for, of which PEFT's format has no description.
absl::StatusOr<Adapters> open_adapters(const std::string& path, const ModelConfig& base);
// Opens the adapters that another rank has opened, by their folder and checksum. Returns an error
// if the checkpoint was replaced meanwhile.
absl::StatusOr<Adapters> open_same_adapters(const std::string& folder, const std::string& checksum,
                                            const ModelConfig& base);

// Returns whether checkpoints lack parameters that the run needs: the base of adapters, or a
// reference model.
inline bool has_base(const TrainConfig& config) {
  return config.model.lora.enabled() || config.dpo.enabled;
}

// Decides whether a run whose base, or reference model, has the hash `base_hash` (empty: unknown)
// may resume from a checkpoint. Returns InvalidArgument if the checkpoint's adapters are of another
// base or have another lora_alpha, or if the checkpoint has another reference model.
absl::Status judge_base(const TrainConfig& config, const std::string& base_hash,
                        const CheckpointInfo& checkpoint);

// Adapters and their opened base.
struct AdaptersOnBase {
  Adapters adapters;
  std::unique_ptr<ParameterSource> base;
};
// Opens the adapters at `path` and their base, and checks that they fit. `base_path`: the base, if
// it is not at the path that the adapters name.
absl::StatusOr<AdaptersOnBase> open_with_base(const std::string& path,
                                              const std::string& base_path = "");

// Opens the model that the adapters at `path`, or of a checkpoint, and their base give.
absl::StatusOr<std::unique_ptr<ParameterSource>> open_merged(const std::string& path,
                                                             const std::string& base_path = "");
absl::StatusOr<std::unique_ptr<ParameterSource>> open_merged_checkpoint(
    const Manifest& manifest, const TrainConfig& config, const std::string& base_path = "");

// Returns the value of lora_weight_qtype as users write it.
std::string show_weight_type(WeightType type);

}  // namespace muster::trainer
