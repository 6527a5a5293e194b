// Tensors in files: their types, shapes and offsets, and conversions of elements. fp32 represents
// every bf16 and fp16 value exactly, so all supported types are converted to fp32 when they are
// read, and from fp32 when they are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::trainer {

// The type of stored elements. kOther is any type that is not supported.
enum class StoredType : uint8_t { kF32, kBf16, kF16, kOther };

// Returns the name of a type as users type it: "float32", "bfloat16" or "float16"; "another type"
// for kOther.
std::string_view type_name(StoredType type);

// Returns the bytes of an element. Requires a type other than kOther.
constexpr size_t stored_bytes(StoredType type) { return type == StoredType::kF32 ? 4 : 2; }

// The maximum number of dimensions of a tensor in a file. No tensor of a model has more.
constexpr size_t kDimensionsMax = 8;

// A tensor in a file.
struct StoredTensor {
  StoredType stored = StoredType::kF32;
  std::string dtype;  // the name of the type in the file
  std::vector<int64_t> shape;
  uint64_t elements = 0;
  uint64_t offset = 0;  // bytes from the start of the file; elements are dense and row-major
};

// Formats a shape: "[32000, 4096]".
std::string show_shape(const std::vector<int64_t>& shape);

// Converts out.size() elements of `type`, which are little-endian and may be unaligned, to fp32.
// Requires a type other than kOther.
void widen(const char* from, StoredType type, std::span<float> out);

// Rounds elements to `type`, ties to even, and stores them in `out`, which must have room for them.
// Values beyond the largest finite value of the type become infinite. Requires a type other than
// kOther.
void narrow(std::span<const float> from, StoredType type, char* out);

}  // namespace muster::trainer
