// The reductions of all transports. Values are always added in rank order, so a sum depends only on
// the group, and all transports give the same bits.
#pragma once

#include <cstddef>
#include <span>

#include "trainer_core/comm/buffer_view.h"

namespace muster::trainer {

// The elementwise reductions of collectives.
enum class Reduction { kSum, kMax };

// Combines the ranks' contributions to a buffer: stores in out[i] the sum contributions[0][i] +
// contributions[1][i] + …, computed in fp32 and rounded once, or their maximum (NaN if any
// contribution is NaN). Each contribution has `out.count` elements of type `in`. `out` may be the
// same memory as one of the contributions.
void combine_contributions(Reduction reduction, DType in,
                           std::span<const std::byte* const> contributions, BufferView out);

// A contiguous part of a buffer, in elements.
struct Slice {
  size_t offset;
  size_t count;
};
// Returns the part of `count` elements that rank `rank` of `size` reduces. Parts are in rank order
// and differ by at most one element.
constexpr Slice slice_of(size_t count, int rank, int size) {
  const auto r = static_cast<size_t>(rank);
  const auto n = static_cast<size_t>(size);
  const size_t begin = count / n * r + (r < count % n ? r : count % n);
  return {begin, count / n + (r < count % n ? 1 : 0)};
}

}  // namespace muster::trainer
