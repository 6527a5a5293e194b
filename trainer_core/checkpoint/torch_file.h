// A file of PyTorch's torch.save with a dictionary of tensors, Meta's format of models
// (consolidated.00.pth): a zip archive (stored_zip.h) of <name>/data.pkl, which describes the
// tensors, and <name>/data/<key>, their data. No code of the file is run (pickle_machine.h).
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/stored_tensor.h"
#include "trainer_core/checkpoint/stored_zip.h"

namespace muster::trainer {

// Immutable and thread-safe. Memory-mapped: a tensor takes no memory before it is read.
class TorchFile {
 public:
  // Returns the error of the open; InvalidArgument or DataLoss names the file, the byte and the
  // defect: a file from before PyTorch 1.6, code in the pickle, a compressed entry, a tensor beyond
  // its storage or with gaps.
  static absl::StatusOr<std::unique_ptr<TorchFile>> open(const std::string& path);

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  // Reads `out.size()` elements from the tensor's element `first` on. Requires that they exist and
  // the type is supported. DataLoss if the file was truncated meanwhile.
  absl::Status read(const StoredTensor& tensor, uint64_t first, std::span<float> out) const;

 private:
  explicit TorchFile(std::unique_ptr<StoredZip> zip) : zip_(std::move(zip)) {}

  absl::Status find_tensors();

  std::unique_ptr<StoredZip> zip_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace muster::trainer
