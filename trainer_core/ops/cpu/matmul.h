// The CPU backend's GEMMs: the built-in one (gemm.h) or oneDNN's (onednn_matmul.h), whichever is
// faster on this processor.
#pragma once

#include <cstdint>
#include <optional>

#include "trainer_core/ops/cpu/gemm.h"
#include "trainer_core/ops/cpu/matmul_shape.h"
#include "trainer_core/ops/cpu/onednn_matmul.h"
#include "trainer_core/ops/cpu/vendor.h"

namespace muster::trainer::cpu {

// The implementation to use. The trainer uses kFastest; tests and benchmarks select one.
enum class MatmulLibrary : uint8_t { kFastest, kOwn, kOneDnn };

// Owns the state of the selected implementation. With oneDNN, the first bf16 GEMM also creates the
// built-in implementation. Called by one thread at a time.
class Matmul {
 public:
  explicit Matmul(int threads, MatmulLibrary library = MatmulLibrary::kFastest,
                  Vendor vendor = this_vendor());

  // Computes c (m, n) = op(a) op(b), or adds it to c; see Gemm::run(). bf16 GEMMs always use the
  // built-in implementation, because oneDNN accepts no fp32 operand in them.
  void run(const MatmulShape& shape, MatrixIn a, MatrixIn b, MatrixOut c);

 private:
  int threads_;
  std::optional<Gemm> own_;
  std::optional<OneDnnMatmul> onednn_;
};

}  // namespace muster::trainer::cpu
