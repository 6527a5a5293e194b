// Element types of tensors and checkpoints. The values are stored in files and never change.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::trainer {

enum class DType : uint32_t { kF32 = 1, kI32 = 2, kBf16 = 3, kI8 = 4 };

// Returns the bytes of an element.
constexpr size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBf16:
      return 2;
    case DType::kI8:
      return 1;
  }
  return 0;
}

// Returns the elements of fp32's size that `elements` of `dtype` occupy, rounded up.
constexpr int64_t floats_of(int64_t elements, DType dtype) {
  constexpr int64_t kFloat = 4;
  return (elements * static_cast<int64_t>(dtype_bytes(dtype)) + kFloat - 1) / kFloat;
}

}  // namespace muster::trainer
