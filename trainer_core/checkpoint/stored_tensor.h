// A tensor in a file: its type, shape and offset. Elements of fp32, bf16 and fp16 convert to fp32,
// which represents each of them exactly, and fp32 converts to any of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::trainer {

// kOther: a type that may occur in a file but is not supported here.
enum class StoredType : uint8_t { kF32, kBf16, kF16, kOther };

// Returns the name as users type it: "float32", "bfloat16", "float16", "another type".
std::string_view type_name(StoredType type);

// Returns the bytes of one element. Requires not kOther.
constexpr size_t stored_bytes(StoredType type) { return type == StoredType::kF32 ? 4 : 2; }

// Maximum dimensions of a tensor in a file; no real tensor has more.
constexpr size_t kDimensionsMax = 8;

struct StoredTensor {
  StoredType stored = StoredType::kF32;
  std::string dtype;  // as the file names it
  std::vector<int64_t> shape;
  uint64_t elements = 0;
  uint64_t offset = 0;  // bytes from the start of the file; dense and row-major
};

// "[32000, 4096]"
std::string show_shape(const std::vector<int64_t>& shape);

// Converts out.size() elements of that type, little-endian and unaligned. Requires not kOther.
void widen(const char* from, StoredType type, std::span<float> out);

// Rounds to that type, ties to even; `out` must have room. Values beyond the type's maximum become
// infinite. Requires not kOther.
void narrow(std::span<const float> from, StoredType type, char* out);

}  // namespace muster::trainer
