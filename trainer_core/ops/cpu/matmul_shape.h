// One fp32 matrix product: c (m, n) = op(a) op(b), or added to c. All operands are row-major and contiguous.
#pragma once

#include <cstdint>
#include <tuple>

namespace muster::trainer::cpu {

struct MatmulShape {
  int64_t m, n, k;
  bool transpose_a;  // a is (k, m) instead of (m, k)
  bool transpose_b;  // b is (n, k) instead of (k, n)
  bool accumulate;   // c += instead of c =

  auto tie() const { return std::tie(m, n, k, transpose_a, transpose_b, accumulate); }
  bool operator<(const MatmulShape& other) const { return tie() < other.tie(); }
};

}  // namespace muster::trainer::cpu
