// The shape of a GEMM: c (m, n) = op(a) op(b), or c += op(a) op(b). All operands are row-major and
// contiguous.
#pragma once

#include <cstdint>
#include <tuple>

#include "trainer_core/base/bf16.h"
#include "trainer_core/base/dtype.h"

namespace muster::trainer::cpu {

struct MatmulShape {
  int64_t m, n, k;
  bool transpose_a;  // a is (k, m) instead of (m, k)
  bool transpose_b;  // b is (n, k) instead of (k, n)
  bool accumulate;   // c += instead of c =

  auto tie() const { return std::tie(m, n, k, transpose_a, transpose_b, accumulate); }
  bool operator<(const MatmulShape& other) const { return tie() < other.tie(); }
};

// A pointer to an operand's elements, fp32 or bf16, and their type. A typed pointer converts to it
// implicitly, so that callers need not state the type.
template <class Void>
struct MatrixPointer {
  Void* data = nullptr;
  DType dtype = DType::kF32;

  MatrixPointer(Void* elements, DType type) : data(elements), dtype(type) {}
  template <class T>
  MatrixPointer(T* elements)  // NOLINT(google-explicit-constructor)
      : MatrixPointer(elements, type_of(elements)) {}

  bool is_bf16() const { return dtype == DType::kBf16; }

 private:
  static DType type_of(const float*) { return DType::kF32; }
  static DType type_of(const Bf16*) { return DType::kBf16; }
};

using MatrixIn = MatrixPointer<const void>;
using MatrixOut = MatrixPointer<void>;

}  // namespace muster::trainer::cpu
