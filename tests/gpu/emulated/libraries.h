// Libraries of the tests' own on the emulated device, in the place of cuBLASLt and cuDNN, for programs that link libraries.cc: plain loops
// in fp64, in the order of the stream, which hold their callers to what the real ones ask of types, alignment and room.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "trainer_core/ops/cuda/matrix_library.h"

namespace emulated {

struct Libraries {
  // What has been computed.
  int64_t attentions = 0, attention_gradients = 0;
  std::array<int64_t, 5> products{};  // by epilogue

  int64_t products_of(muster::trainer::cuda::LibraryEpilogue::Kind kind) const {
    return products[static_cast<size_t>(kind)];
  }
  // Whether products have epilogues.
  bool has_epilogues = true;
  // Of a backward pass: bytes of workspace for each score, as cuDNN's deterministic one.
  size_t workspace_of_score = 2;
};
Libraries& libraries();

}  // namespace emulated
