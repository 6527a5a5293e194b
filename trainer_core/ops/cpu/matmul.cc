#include "trainer_core/ops/cpu/matmul.h"

#include <cstring>

#include <hwy/detect_targets.h>

#include "trainer_core/ops/cpu/gemm_kernels.h"

namespace muster::trainer::cpu {
namespace {

// The faster library by the instruction set that Highway chose, measured with bench/gemm.py and
// bench/cpu_train:
// - AVX2 on AMD Zen 3: the built-in GEMM is as fast as OpenBLAS. oneDNN is 2 to 10% slower overall,
//   and falls to 40% of the peak for some weight gradients (4096 x 256 x 1024 of a transposed left
//   operand). Few rows are faster, too.
// - AVX-512 on AMD Zen 5: equal overall, from 7% slower to 8% faster by shape: the built-in GEMM,
//   which bf16 needs there anyway.
// - AVX-512 on Intel: oneDNN, whose kernels are tuned for it. The built-in GEMM was not measured.
// - SSE4: oneDNN, faster by 10% even without AVX; with AVX, which Highway does not use, by a factor
//   of 2.
// - NEON: the built-in GEMM; oneDNN has kernels for SVE, but none for NEON alone. Not measured.
bool own_is_faster(Vendor vendor) {
  const int64_t target = gemm_target();
  return target == HWY_AVX2 || target == HWY_NEON ||
         (target == HWY_AVX3 && vendor != Vendor::kIntel);
}

}  // namespace

Matmul::Matmul(int threads, MatmulLibrary library, Vendor vendor) : threads_(threads) {
  if (library == MatmulLibrary::kFastest) {
    library = own_is_faster(vendor) ? MatmulLibrary::kOwn : MatmulLibrary::kOneDnn;
  }
  if (library == MatmulLibrary::kOwn) {
    own_.emplace(threads);
  } else {
    onednn_.emplace(threads, vendor);
  }
}

void Matmul::run(const MatmulShape& shape, MatrixIn a, MatrixIn b, MatrixOut c) {
  if (shape.m == 0 || shape.n == 0) return;
  if (shape.k == 0) {
    // dnnl_sgemm rejects empty matrices; an empty sum is 0.
    if (!shape.accumulate) {
      const auto elements = static_cast<size_t>(shape.m * shape.n);
      std::memset(c.data, 0, elements * (c.is_bf16() ? sizeof(Bf16) : sizeof(float)));
    }
    return;
  }
  if (a.is_bf16() || b.is_bf16() || c.is_bf16()) {
    if (!own_) own_.emplace(threads_);
    own_->run(shape, a, b, c);
  } else if (onednn_) {
    onednn_->run(shape, static_cast<const float*>(a.data), static_cast<const float*>(b.data),
                 static_cast<float*>(c.data));
  } else {
    own_->run(shape, a, b, c);
  }
}

}  // namespace muster::trainer::cpu
