// Sums computed block by block, so that the order of additions does not depend on the number of
// threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/parallel.h"

namespace muster::trainer::cpu {

// Number of blocks, and thus of partial sums, of a reduction.
constexpr int64_t kReductionBlocks = 256;

// Reduces elements [first, end) by `range`; converts bf16 elements to fp32 in pieces.
inline double reduce_part(const Tensor& x, int64_t first, int64_t end,
                          double (*range)(int64_t, const float*)) {
  if (x.dtype == DType::kF32) return range(end - first, x.f32() + first);
  const auto* narrow = static_cast<const Bf16*>(x.float_data());
  std::array<float, 1024> wide{};
  double total = 0;
  while (first < end) {
    const int64_t count = std::min(static_cast<int64_t>(wide.size()), end - first);
    std::transform(narrow + first, narrow + first + count, wide.begin(),
                   [](Bf16 value) { return value.value(); });
    total += range(count, wide.data());
    first += count;
  }
  return total;
}

// Reduces all elements of x and returns the sum. `range` reduces the elements of a block.
inline double reduce(int threads, const Tensor& x, double (*range)(int64_t, const float*)) {
  const int64_t n = x.elements();
  std::array<double, kReductionBlocks> partial{};
  parallel_for(useful_threads(threads, n), kReductionBlocks, [&](int64_t begin, int64_t end, int) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = n * block / kReductionBlocks;
      partial[static_cast<size_t>(block)] =
          reduce_part(x, first, n * (block + 1) / kReductionBlocks, range);
    }
  });
  double total = 0;
  for (const double value : partial) total += value;
  return total;
}

// Stores in `to` (width), or adds to it, the sum of `blocks` partial sums that lie `stride`
// elements apart in `from`, in order. Overwrites the first partial sum.
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
