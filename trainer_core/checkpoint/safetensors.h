// The safetensors format, as Hugging Face's library reads and writes it:
//
//   u64 little-endian N | N bytes of JSON, padded with spaces to 8 bytes | tensor data without gaps
//   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …, "__metadata__": {"k": "v"}}
//
// fp32, bf16 and fp16 are read and written (stored_tensor.h). Tensors of other types may be in a file, unread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/base/mapped_file.h"
#include "trainer_core/checkpoint/block_file.h"
#include "trainer_core/checkpoint/stored_tensor.h"

namespace muster::trainer {

// The library's own bound on the JSON header.
constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;

// A tensor of a file, which they all follow without gaps.
struct TensorHeader {
  std::string name;
  std::vector<int64_t> shape;
  StoredType stored = StoredType::kF32;
};

// What stands before the tensors' data. Not of kOther.
std::string safetensors_header(const std::vector<TensorHeader>& tensors);

struct TensorToWrite {
  std::string name;
  std::vector<int64_t> shape;
  const void* data;  // product of the shape, of that type
  StoredType stored = StoredType::kF32;
};

struct WrittenSafetensors {
  FileDigest digest;
  uint64_t data_begin = 0;  // where the first tensor lies; the others follow without gaps
};

// Writes and syncs a file, which becomes empty first if there is one. ResourceExhausted when the disk is full; the path is in the message. What was written
// before an error stays: the caller owns the folder.
absl::StatusOr<WrittenSafetensors> write_safetensors(const std::string& path,
                                                     const std::vector<TensorToWrite>& tensors);

// A file mapped read-only. Immutable: any thread.
class SafetensorsFile {
 public:
  // NotFound, or DataLoss naming the file and what is wrong. Allocates no more than the header's size allows.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> open(const std::string& path);

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  // A tensor's numbers as fp32. Requires out.size() == tensor.elements, and not kOther. DataLoss when the file was cut off meanwhile.
  absl::Status read(const StoredTensor& tensor, std::span<float> out) const;

 private:
  explicit SafetensorsFile(std::unique_ptr<MappedFile> file) : file_(std::move(file)) {}

  absl::Status parse();

  std::unique_ptr<MappedFile> file_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace muster::trainer
