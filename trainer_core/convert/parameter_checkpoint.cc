#include "trainer_core/convert/parameter_checkpoint.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "common/files/file_write.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/publish.h"

namespace muster::trainer {
namespace {

// The elements gathered for one file; a larger tensor has its own file.
constexpr int64_t kGatheredElements = int64_t{128} << 20;

// Gathers tensors and writes them file by file.
class Gatherer {
 public:
  Gatherer(const ParameterSource& source, std::string folder)
      : source_(source),
        folder_(std::move(folder)),
        rows_(model_params(source.description().model)) {}

  absl::Status add(const HuggingFaceTensor& tensor) {
    const auto gathered = static_cast<int64_t>(block_.size());
    if (gathered > 0 && gathered + tensor.elements() > kGatheredElements) {
      if (auto status = flush(); !status.ok()) return status;
    }
    const size_t begin = block_.size();
    block_.resize(begin + static_cast<size_t>(tensor.elements()));
    // One row, or consecutive rows that other formats store as one tensor.
    for (const ParamSpec& row : rows_) {
      if (row.offset < tensor.offset || row.offset >= tensor.offset + tensor.elements()) continue;
      boxes_.push_back(whole_box(row));
      boxes_.back().offset += static_cast<int64_t>(begin) - tensor.offset;
    }
    return source_.read(tensor, std::span(block_).subspan(begin));
  }

  absl::Status flush() {
    auto files = write_boxes(folder_, CheckpointPart::kModel, writer_++, boxes_, block_,
                             kCheckpointFileBytes);
    if (!files.ok()) return files.status();
    std::ranges::move(*files, std::back_inserter(files_));
    boxes_.clear();
    block_.clear();
    return absl::OkStatus();
  }

  std::vector<StoredFile> take_files() { return std::move(files_); }

 private:
  const ParameterSource& source_;
  const std::string folder_;
  const std::vector<ParamSpec> rows_;
  std::vector<TensorBox> boxes_;
  std::vector<float> block_;
  int writer_ = 0;
  std::vector<StoredFile> files_;
};

}  // namespace

absl::StatusOr<WrittenWeights> write_checkpoint(const ParameterSource& source,
                                                const TrainConfig& config,
                                                const std::string& directory,
                                                const BeforeTensor& before) {
  const std::string folder = absl::StrCat(directory, "/0");
  if (auto status = make_synced_folders(folder); !status.ok()) return status;
  Gatherer gatherer(source, folder);
  int64_t done = 0;
  for (const HuggingFaceTensor& tensor : source.tensors()) {
    if (auto status = before(done); !status.ok()) return status;
    if (auto status = gatherer.add(tensor); !status.ok()) return status;
    done += tensor.elements();
  }
  if (auto status = gatherer.flush(); !status.ok()) return status;
  const Manifest manifest{
      {.folder = "", .step = 0, .samples = 0, .config = to_json(config), .optimizer = kNoOptimizer},
      gatherer.take_files()};
  WrittenWeights written{.files = manifest.files.size(), .bytes = 0, .rounded = 0};
  for (const StoredFile& file : manifest.files) written.bytes += file.digest.bytes;
  // The manifest is written last: the sync of the folder that follows it also covers the names of
  // the other files.
  const absl::Status status =
      write_file_atomically(absl::StrCat(folder, "/", kManifestFile), manifest_text(manifest),
                            {.durability = Durability::kPowerLoss});
  if (!status.ok()) return status;
  return written;
}

}  // namespace muster::trainer
