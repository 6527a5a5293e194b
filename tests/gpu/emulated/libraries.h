// Libraries of the tests' own on the emulated device, in the place of cuBLASLt and cuDNN, for programs that link libraries.cc: plain loops
// in fp64, in the order of the stream, which hold their callers to what the real ones ask of types, alignment and room.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emulated {

struct Libraries {
  // What has been computed.
  int64_t attentions = 0, attention_gradients = 0;
  // Of a backward pass: bytes of workspace for each score, as cuDNN's deterministic one.
  size_t workspace_of_score = 2;
};
Libraries& libraries();

}  // namespace emulated
