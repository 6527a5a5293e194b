// A tensor as a file holds it: its type, its shape and its place. Numbers of fp32, bf16 and fp16 become fp32, which holds
// each of them exactly, and fp32 becomes any of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::trainer {

// kOther: a type that may be in a file, and that nothing here reads.
enum class StoredType : uint8_t { kF32, kBf16, kF16, kOther };

// "float32", "bfloat16", "float16", "another type": as people type them.
std::string_view type_name(StoredType type);

// Bytes of one number. Not of kOther.
constexpr size_t stored_bytes(StoredType type) { return type == StoredType::kF32 ? 4 : 2; }

// Of a tensor in a file; more than any has.
constexpr size_t kDimensionsMax = 8;

struct StoredTensor {
  StoredType stored = StoredType::kF32;
  std::string dtype;  // as the file names it
  std::vector<int64_t> shape;
  uint64_t elements = 0;
  uint64_t offset = 0;  // bytes from the start of the file; the numbers lie dense and row-major
};

// "[32000, 4096]"
std::string show_shape(const std::vector<int64_t>& shape);

// out.size() numbers of that type, little-endian and aligned to nothing. Not of kOther.
void widen(const char* from, StoredType type, std::span<float> out);

// The nearest numbers of that type, ties to even; `out` has room for them. What is beyond the type's largest number becomes
// infinite. Not of kOther.
void narrow(std::span<const float> from, StoredType type, char* out);

}  // namespace muster::trainer
