// Replacements of cuBLASLt and cuDNN on the emulated device, for programs that link libraries.cc.
// They compute by plain loops in fp64, in stream order, and check the real libraries' requirements
// on types, alignment and workspace.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "trainer_core/ops/cuda/gemm/matrix_library.h"

namespace emulated {

// Settings and counters of the replacements.
struct Libraries {
  // Number of computed forward passes and backward passes.
  int64_t attentions = 0, attention_gradients = 0;
  std::array<int64_t, 5> products{};  // number of computed GEMMs, by epilogue
  int64_t tf32_products = 0;          // GEMMs among them with operands rounded to TF32

  int64_t products_of(muster::trainer::cuda::LibraryEpilogue::Kind kind) const {
    return products[static_cast<size_t>(kind)];
  }
  // True: GEMMs support epilogues.
  bool has_epilogues = true;
  // Bytes of workspace that a backward pass needs per attention score, as cuDNN's deterministic one
  // does.
  size_t workspace_of_score = 2;
};
Libraries& libraries();

}  // namespace emulated
