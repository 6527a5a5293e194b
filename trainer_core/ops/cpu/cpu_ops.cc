#include "trainer_core/ops/cpu/cpu_ops.h"

#include <cstring>

#include "trainer_core/ops/shape_checks.h"

namespace muster::trainer {
namespace cpu {

void CpuOps::upload(const void* from, const Tensor& to) { std::memcpy(to.data, from, to.bytes()); }
void CpuOps::download(const Tensor& from, void* to) { std::memcpy(to, from.data, from.bytes()); }

void CpuOps::matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
                    const Tensor& c, Accumulate accumulate) {
  const bool ta = transpose_a == Transpose::kYes, tb = transpose_b == Transpose::kYes;
  const auto [m, n, k] = matmul_sizes(a, ta, b, tb, c);
  matmul_.run({m, n, k, ta, tb, accumulate == Accumulate::kYes}, {a.float_data(), a.dtype},
              {b.float_data(), b.dtype}, {c.float_data(), c.dtype});
}

}  // namespace cpu

std::unique_ptr<Ops> cpu_ops(int threads) {
  MUSTER_CHECK(threads >= 1) << threads << " threads";
#ifndef _OPENMP
  threads = 1;  // the thread sanitizer's build
#endif
  return std::make_unique<cpu::CpuOps>(threads);
}

}  // namespace muster::trainer
