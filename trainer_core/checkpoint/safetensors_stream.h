// Writes a safetensors file (safetensors.h) piece by piece, so that memory need not hold a complete
// tensor.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/block_file.h"
#include "trainer_core/checkpoint/safetensors.h"

namespace muster::trainer {

// A file that is being written. Called on one thread only.
class SafetensorsStream {
 public:
  // Creates the file and writes its header. The tensors must follow in the order of `tensors`.
  // Returns ResourceExhausted if the disk is full; errors contain the path. After an error a
  // partial file remains, which the caller removes.
  static absl::StatusOr<std::unique_ptr<SafetensorsStream>> create(
      const std::string& path, const std::vector<TensorHeader>& tensors);

  // Converts elements to `stored` and appends them. The tensors are appended in order, in pieces of
  // any size. Returns OutOfRange if a finite value would become infinite.
  absl::Status append(std::span<const float> elements, StoredType stored);
  // Syncs the file and returns its size in bytes. Called once, as the last call.
  absl::StatusOr<uint64_t> finish();

  // Returns the number of elements that their stored type does not represent exactly.
  uint64_t rounded() const { return rounded_; }

 private:
  explicit SafetensorsStream(std::unique_ptr<BlockWriter> file) : file_(std::move(file)) {}

  std::unique_ptr<BlockWriter> file_;
  uint64_t rounded_ = 0;
};

}  // namespace muster::trainer
