// manifest.json of a checkpoint: the description that a reader needs before it reads data.
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
// A dtype is F32 or BF16. A file holds boxes of tensors, each dense and row-major from byte `at`
// on; all boxes of a tensor together cover it, each element once. `xxh3` has a checksum for every
// block_bytes of the file. `checksum` covers the rest of the manifest as compact JSON with sorted
// keys. `data` (data_order.h) is missing in checkpoints from before it was introduced.
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

namespace muster::trainer {

constexpr char kManifestFile[] = "manifest.json";
constexpr int kCheckpointVersion = 3;
// A box takes some 200 bytes and a block 20. This is room for a million boxes, which 1,000 ranks
// have of a model of 80 layers and its moments, in addition to 10 TB of blocks.
constexpr size_t kManifestBytesMax = size_t{256} << 20;

// The optimizer's name in a checkpoint of parameters only.
constexpr char kNoOptimizer[] = "none";

enum class CheckpointPart { kModel, kOptimizer };
constexpr std::string_view kCheckpointPartNames[] = {"model", "optimizer"};

struct CheckpointInfo {
  std::string folder;
  int64_t step = 0;
  uint64_t samples = 0;  // of the data set, consumed before this step
  nlohmann::json config;
  nlohmann::json data = {};    // the data and its order so far (data_order.h); null: unknown
  std::string optimizer = {};  // whose state is stored; save() takes it from the layout
};

struct StoredBox {
  TensorBox box;    // `offset` means nothing
  uint64_t at = 0;  // bytes from the file's start, a multiple of a number's size
};

struct StoredFile {
  std::string name;
  CheckpointPart part = CheckpointPart::kModel;
  FileDigest digest;
  std::vector<StoredBox> boxes;
};

struct Manifest {
  CheckpointInfo info;
  std::vector<StoredFile> files;
  std::string checksum = {};  // as it was read: two checkpoints with one checksum are one

  struct Kind {
    DType dtype;
    std::vector<int64_t> shape;
  };
  // Returns all tensors of a part by name.
  std::map<std::string, Kind> tensors(CheckpointPart part) const;
};

// `others` are files_json() of other writers' files.
std::string manifest_text(const Manifest& manifest, const std::vector<nlohmann::json>& others = {});
// Encodes the manifest's entries of files, for their writer.
nlohmann::json files_json(const std::vector<StoredFile>& files);
// Inverse of files_json, for one writer, whose boxes need not cover tensors. DataLoss as of
// parse_manifest.
absl::StatusOr<std::vector<StoredFile>> parse_files(const nlohmann::json& files);

// Parses a manifest's text; `info.folder` stays empty. DataLoss describes the defect: no JSON,
// another checksum, a box outside its tensor or its file, a tensor whose boxes leave a gap or
// overlap. FailedPrecondition names another version.
absl::StatusOr<Manifest> parse_manifest(std::string_view text);

// Reads the folder's manifest and checks that every file exists with its size, without reading
// files. DataLoss names the difference; another version is FailedPrecondition; disk errors are
// returned as they are. kIgnore: does not check the files.
enum class FileSizes { kCompare, kIgnore };
absl::StatusOr<Manifest> read_manifest(const std::string& folder,
                                       FileSizes sizes = FileSizes::kCompare);
// Reads the manifest that another rank has read, identified by its checksum. Does not check files:
// the ranks that read a file compare its size. FailedPrecondition if the folder holds another
// checkpoint.
absl::StatusOr<Manifest> read_same_manifest(const std::string& folder, const std::string& checksum);

}  // namespace muster::trainer
