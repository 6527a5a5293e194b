// The manifest of a checkpoint, manifest.json: the description of its files, which is read before
// any data.
//
//   {"format": "muster-checkpoint", "version": 3, "step": 120, "samples": 960,
//    "optimizer": "adamw", "config": {…}, "data": {…}, "block_bytes": 4194304,
//    "tensors": {"model": {"lm_head.weight": {"dtype": "F32", "shape": [320, 32]}, …},
//                "optimizer": {…}},
//    "files": [{"name": "model-00000-00000.safetensors", "part": "model", "bytes": 81920,
//               "xxh3": ["2d06800538d394c2", …],
//               "boxes": [{"tensor": "lm_head.weight", "begin": [0, 0], "extent": [320, 32],
//                          "at": 1048}, …]}, …],
//    "checksum": "99aa06d3014798d8"}
//
// A dtype is F32 or BF16. A file contains boxes of tensors; each box is dense and row-major from
// byte `at` of the file on. All boxes of a tensor together contain each element exactly once.
// `xxh3` has a checksum for every block_bytes of the file. `checksum` is the checksum of the
// manifest without this field, as compact JSON with sorted keys. `data` (data_order.h) is missing
// in old checkpoints; `base_hash` exists in checkpoints of adapters and of preference tuning only,
// `evaluation` (eval_progress.h) in those of trainings with early stopping or best checkpoints, and
// `spikes` (spike_state.h) in those of trainings that detect spikes or have rolled back.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/base/tensor_box.h"
#include "trainer_core/checkpoint/block_file.h"
#include "trainer_core/checkpoint/eval_progress.h"
#include "trainer_core/checkpoint/spike_state.h"

namespace muster::trainer {

constexpr char kManifestFile[] = "manifest.json";
constexpr int kCheckpointVersion = 3;
// The maximum size of a manifest. A box takes some 200 bytes and a block 20, so it suffices for the
// million boxes of 1,000 ranks with a model of 80 layers and its moments, and for the blocks of 10
// TB.
constexpr size_t kManifestBytesMax = size_t{256} << 20;

// The name of the optimizer in a checkpoint that has only parameters.
constexpr char kNoOptimizer[] = "none";

// The parts of a checkpoint: the parameters and the optimizer's state.
enum class CheckpointPart { kModel, kOptimizer };
constexpr std::string_view kCheckpointPartNames[] = {"model", "optimizer"};

// The values in a manifest that describe the state of the training.
struct CheckpointInfo {
  std::string folder;
  int64_t step = 0;          // completed steps
  uint64_t samples = 0;      // samples of the data that these steps have consumed
  nlohmann::json config;     // the training config (train_config.h)
  nlohmann::json data = {};  // the data order (data_order.h); null: unknown
  // The hash of the base of adapters (adapters.h); empty: the checkpoint has all parameters.
  std::string base_hash = {};
  // The optimizer whose state is stored; save() reads it from the layout.
  std::string optimizer = {};
  EvalProgress evaluation = {};
  SpikeState spikes = {};
};

// A box and its position in a file.
struct StoredBox {
  TensorBox box;    // `offset` is not used
  uint64_t at = 0;  // bytes from the file's start, a multiple of the element size
};

// A file of a checkpoint.
struct StoredFile {
  std::string name;
  CheckpointPart part = CheckpointPart::kModel;
  FileDigest digest;
  std::vector<StoredBox> boxes;
};

// The contents of a manifest.
struct Manifest {
  CheckpointInfo info;
  std::vector<StoredFile> files;
  std::string checksum = {};  // the field `checksum`; equal for copies of a checkpoint

  struct Kind {
    DType dtype;
    std::vector<int64_t> shape;
  };
  // Returns the tensors of a part, by name.
  std::map<std::string, Kind> tensors(CheckpointPart part) const;
};

// Add the members of a checkpoint's description that not every training has, and read them. Reading
// throws exceptions of the JSON library and std::length_error.
void write_optional(const CheckpointInfo& info, nlohmann::json& json);
void read_optional(const nlohmann::json& json, CheckpointInfo& info);

// Returns the text of a manifest. `others` are the results of files_json() for the files of other
// writers.
std::string manifest_text(const Manifest& manifest, const std::vector<nlohmann::json>& others = {});
// Returns the manifest's entries of the files of one writer.
nlohmann::json files_json(const std::vector<StoredFile>& files);
// Parses the result of files_json(). The boxes of one writer need not cover tensors. Returns
// DataLoss as parse_manifest() does.
absl::StatusOr<std::vector<StoredFile>> parse_files(const nlohmann::json& files);

// Parses the text of a manifest; `info.folder` remains empty. Returns FailedPrecondition for
// another version, and DataLoss with the defect: the text is not JSON, the checksum differs, a box
// is outside its tensor or its file, or the boxes of a tensor have a gap or overlap.
absl::StatusOr<Manifest> parse_manifest(std::string_view text);

// Whether to compare the existence and size of every file with the manifest.
enum class FileSizes { kCompare, kIgnore };
// Reads the manifest of a folder, but no other file. Returns DataLoss with the difference,
// FailedPrecondition for another version, and errors of the disk as they are.
absl::StatusOr<Manifest> read_manifest(const std::string& folder,
                                       FileSizes sizes = FileSizes::kCompare);
// Reads the manifest that another rank has read; `checksum` is its checksum on that rank. Does not
// check files, because ranks compare sizes when they read them. Returns FailedPrecondition if the
// folder has another checkpoint.
absl::StatusOr<Manifest> read_same_manifest(const std::string& folder, const std::string& checksum);
// Does the same, but waits until the file system shows what rank 0 has read (visible.h).
absl::StatusOr<Manifest> read_same_manifest_when_visible(const std::string& folder,
                                                         const std::string& checksum);

}  // namespace muster::trainer
