// Reads a dictionary of tensors that PyTorch's torch.save has written, such as Meta's
// consolidated.00.pth. The file is a zip archive (stored_zip.h) with <name>/data.pkl, which
// describes the tensors, and <name>/data/<key>, which has their data. No code in the file is run
// (pickle_machine.h).
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/foreign/stored_zip.h"
#include "trainer_core/checkpoint/stored_tensor.h"

namespace muster::trainer {

// A mapped file. Immutable and thread-safe. A tensor takes no memory before it is read.
class TorchFile {
 public:
  // Opens a file. Returns the system's error if it cannot be opened. Returns InvalidArgument or
  // DataLoss, with the path, the byte and the defect, for a file from before PyTorch 1.6, code in
  // the pickle, a compressed entry, and a tensor that is outside its storage or has gaps.
  static absl::StatusOr<std::unique_ptr<TorchFile>> open(const std::string& path);

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  // Reads elements [first, first + out.size()) of a tensor. Requires that they exist and that the
  // type is supported. Returns DataLoss if the file was truncated since open().
  absl::Status read(const StoredTensor& tensor, uint64_t first, std::span<float> out) const;

 private:
  explicit TorchFile(std::unique_ptr<StoredZip> zip) : zip_(std::move(zip)) {}

  absl::Status find_tensors();

  std::unique_ptr<StoredZip> zip_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace muster::trainer
