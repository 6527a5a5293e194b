// The CPU backend's matrix products: our own (gemm.h) or oneDNN's (onednn_matmul.h), whichever is faster on this
// processor.
#pragma once

#include <cstdint>
#include <optional>

#include "trainer_core/ops/cpu/gemm.h"
#include "trainer_core/ops/cpu/matmul_shape.h"
#include "trainer_core/ops/cpu/onednn_matmul.h"
#include "trainer_core/ops/cpu/vendor.h"

namespace muster::trainer::cpu {

// kFastest is what the trainer uses; tests and benchmarks name one.
enum class MatmulLibrary : uint8_t { kFastest, kOwn, kOneDnn };

// Owns what its library keeps between calls, and nothing of the other; with oneDNN our own from the first bf16 product
// on. One thread at a time.
class Matmul {
 public:
  explicit Matmul(int threads, MatmulLibrary library = MatmulLibrary::kFastest,
                  Vendor vendor = this_vendor());

  // c (m, n) = op(a) op(b) (+ c), with bf16 as in Gemm::run: bf16 products are always our own, because oneDNN takes no
  // fp32 operand in one.
  void run(const MatmulShape& shape, MatrixIn a, MatrixIn b, MatrixOut c);

 private:
  int threads_;
  std::optional<Gemm> own_;
  std::optional<OneDnnMatmul> onednn_;
};

}  // namespace muster::trainer::cpu
