// Sums over rows, made block by block so that the order of additions does not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trainer_core/ops/cpu/kernels.h"

namespace muster::trainer::cpu {

// to (width) = or += the sum of `blocks` partial sums that lie `stride` apart, in order. The sum is made in the first.
inline void add_blocks(float* from, int64_t blocks, int64_t stride, int64_t width,
                       Accumulate accumulate, float* to) {
  for (int64_t block = 1; block < blocks; ++block) add_range(width, from + block * stride, from);
  if (accumulate == Accumulate::kYes) {
    add_range(width, from, to);
  } else {
    std::copy_n(from, width, to);
  }
}

}  // namespace muster::trainer::cpu
