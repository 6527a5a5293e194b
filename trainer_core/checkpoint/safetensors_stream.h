// Writes a safetensors file (safetensors.h) tensor by tensor, so that its content is never in
// memory as a whole.
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

// One thread.
class SafetensorsStream {
 public:
  // Writes the header: the tensors that follow, in this order. Errors name the path;
  // ResourceExhausted if the disk is full. The caller removes partial files after an error.
  static absl::StatusOr<std::unique_ptr<SafetensorsStream>> create(
      const std::string& path, const std::vector<TensorHeader>& tensors);

  // Appends elements of the tensors in order, in pieces of any size, converted to `stored`.
  // OutOfRange for a finite value that would become infinite.
  absl::Status append(std::span<const float> numbers, StoredType stored);
  // Syncs and returns the file's bytes. Called once, last.
  absl::StatusOr<uint64_t> finish();

  // Returns the number of elements that the type did not represent exactly.
  uint64_t rounded() const { return rounded_; }

 private:
  explicit SafetensorsStream(std::unique_ptr<BlockWriter> file) : file_(std::move(file)) {}

  std::unique_ptr<BlockWriter> file_;
  uint64_t rounded_ = 0;
};

}  // namespace muster::trainer
