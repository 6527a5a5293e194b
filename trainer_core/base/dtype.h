// Element types that tensors, shards and checkpoints know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace muster::trainer {

enum class DType : uint32_t { kF32 = 1, kI32 = 2 };

constexpr size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
  }
  return 0;
}

// The name that safetensors gives the type.
constexpr std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kI32:
      return "I32";
  }
  return "?";
}

}  // namespace muster::trainer
