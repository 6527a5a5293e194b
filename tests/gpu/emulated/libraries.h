// Test doubles of cuBLASLt and cuDNN for the emulated device, for programs that link libraries.cc:
// plain loops in fp64, in stream order. They check the requirements of the real libraries on types,
// alignment and workspace.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "trainer_core/ops/cuda/matrix_library.h"

namespace emulated {

struct Libraries {
  // Number of computed passes.
  int64_t attentions = 0, attention_gradients = 0;
  std::array<int64_t, 5> products{};  // indexed by epilogue
  int64_t tf32_products = 0;          // those of them whose operands are rounded to TF32

  int64_t products_of(muster::trainer::cuda::LibraryEpilogue::Kind kind) const {
    return products[static_cast<size_t>(kind)];
  }
  // Whether GEMMs support epilogues.
  bool has_epilogues = true;
  // Bytes of workspace per score of a backward pass, as in cuDNN's deterministic one.
  size_t workspace_of_score = 2;
};
Libraries& libraries();

}  // namespace emulated
