// The safetensors format, compatible with Hugging Face's library:
//
//   u64 little-endian N | N bytes of JSON, padded with spaces to 8 bytes | tensor data without gaps
//   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …, "__metadata__":
//     {"k": "v"}}
//
// Tensors of fp32, bf16 and fp16 can be read and written (stored_tensor.h). A file may contain
// tensors of other types, but these cannot be read.
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

// The maximum size of the JSON header, as in Hugging Face's library.
constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;

// A tensor of a file. Tensors are stored without gaps, in the order of the headers.
struct TensorHeader {
  std::string name;
  std::vector<int64_t> shape;
  StoredType stored = StoredType::kF32;
};

// Returns the bytes before the data of the tensors. Requires that no tensor is kOther.
std::string safetensors_header(const std::vector<TensorHeader>& tensors);

// A tensor and its data.
struct TensorToWrite {
  std::string name;
  std::vector<int64_t> shape;
  const void* data;  // elements of the type `stored`, row-major
  StoredType stored = StoredType::kF32;
};

// A written file.
struct WrittenSafetensors {
  FileDigest digest;
  uint64_t data_begin = 0;  // offset of the first tensor's data
};

// Writes and syncs a new file. Returns AlreadyExists if there is a file, and ResourceExhausted if
// the disk is full; errors contain the path. After an error a partial file remains, which the
// caller removes.
// `meter`, which may be null, counts the bytes.
absl::StatusOr<WrittenSafetensors> write_safetensors(const std::string& path,
                                                     const std::vector<TensorToWrite>& tensors,
                                                     SaveMeter* meter = nullptr);

// A file mapped read-only. Immutable and thread-safe.
class SafetensorsFile {
 public:
  // Opens a file. Returns NotFound, or DataLoss with the path and the defect. Allocates memory in
  // proportion to the size of the header only.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> open(const std::string& path);

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  // Reads the elements of a tensor as fp32. Requires out.size() == tensor.elements and a type other
  // than kOther. Returns DataLoss if the file was truncated since open().
  absl::Status read(const StoredTensor& tensor, std::span<float> out) const;

 private:
  explicit SafetensorsFile(std::unique_ptr<MappedFile> file) : file_(std::move(file)) {}

  absl::Status parse();

  std::unique_ptr<MappedFile> file_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace muster::trainer
