// The safetensors format, compatible with Hugging Face's library:
//
//   u64 little-endian N | N bytes of JSON, padded with spaces to 8 bytes | tensor data without gaps
//   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …, "__metadata__":
//     {"k": "v"}}
//
// fp32, bf16 and fp16 are read and written (stored_tensor.h). A file may contain tensors of other
// types, which are not read.
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

// A tensor of a file; tensors follow each other without gaps.
struct TensorHeader {
  std::string name;
  std::vector<int64_t> shape;
  StoredType stored = StoredType::kF32;
};

// Returns the bytes before the tensors' data. Requires no kOther.
std::string safetensors_header(const std::vector<TensorHeader>& tensors);

struct TensorToWrite {
  std::string name;
  std::vector<int64_t> shape;
  const void* data;  // elements of the shape, of that type
  StoredType stored = StoredType::kF32;
};

struct WrittenSafetensors {
  FileDigest digest;
  uint64_t data_begin = 0;  // offset of the first tensor; the others follow without gaps
};

// Writes and syncs a file, truncating an existing one. ResourceExhausted if the disk is full;
// errors name the path. Leaves partial data after an error: the caller owns the folder. `meter`, if
// any, counts the bytes.
absl::StatusOr<WrittenSafetensors> write_safetensors(const std::string& path,
                                                     const std::vector<TensorToWrite>& tensors,
                                                     SaveMeter* meter = nullptr);

// A file mapped read-only. Immutable and thread-safe.
class SafetensorsFile {
 public:
  // Returns NotFound, or DataLoss naming the file and the defect. Allocates no more than the
  // header's size allows.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> open(const std::string& path);

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  // Reads a tensor's elements as fp32. Requires out.size() == tensor.elements, and not kOther.
  // DataLoss if the file was truncated meanwhile.
  absl::Status read(const StoredTensor& tensor, std::span<float> out) const;

 private:
  explicit SafetensorsFile(std::unique_ptr<MappedFile> file) : file_(std::move(file)) {}

  absl::Status parse();

  std::unique_ptr<MappedFile> file_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace muster::trainer
