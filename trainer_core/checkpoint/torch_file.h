// A file of PyTorch's torch.save that holds a dictionary of tensors, as Meta publishes models (consolidated.00.pth): a zip
// archive (stored_zip.h) of <name>/data.pkl, which says what the tensors are, and <name>/data/<key>, their numbers. No code
// of the file is run (pickle_machine.h).
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/stored_tensor.h"
#include "trainer_core/checkpoint/stored_zip.h"

namespace muster::trainer {

// Immutable: any thread. Mapped: a tensor takes no memory before it is read.
class TorchFile {
 public:
  // The error of the open; InvalidArgument or DataLoss names the file, the byte and what is wrong there: a file of before
  // PyTorch 1.6, code in the pickle, a compressed entry, a tensor beyond its storage or with gaps between its numbers.
  static absl::StatusOr<std::unique_ptr<TorchFile>> open(const std::string& path);

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  // `out.size()` numbers from the tensor's number `first` on. Requires that it has them, and a type that is read. DataLoss when the file
  // was cut off meanwhile.
  absl::Status read(const StoredTensor& tensor, uint64_t first, std::span<float> out) const;

 private:
  explicit TorchFile(std::unique_ptr<StoredZip> zip) : zip_(std::move(zip)) {}

  absl::Status find_tensors();

  std::unique_ptr<StoredZip> zip_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace muster::trainer
