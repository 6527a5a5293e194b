// The reductions of every transport. Ranks are always added in rank order, so a sum depends only on
// the group, and all transports agree bit for bit.
#pragma once

#include <cstddef>
#include <span>

#include "trainer_core/comm/buffer_view.h"

namespace muster::trainer {

enum class Reduction { kSum, kMax };

// out[i] = versions[0][i] + versions[1][i] + …, or the largest of them (NaN where one is NaN), in
// fp32 and rounded once. Each version has `out.count` numbers of type `in`. `out` may be one of the
// versions.
void combine_versions(Reduction reduction, DType in, std::span<const std::byte* const> versions,
                      BufferView out);

// The part of `count` elements that rank `rank` of `size` reduces: nearly equal, contiguous, in
// rank order.
struct Slice {
  size_t offset;
  size_t count;
};
constexpr Slice slice_of(size_t count, int rank, int size) {
  const auto r = static_cast<size_t>(rank);
  const auto n = static_cast<size_t>(size);
  const size_t begin = count / n * r + (r < count % n ? r : count % n);
  return {begin, count / n + (r < count % n ? 1 : 0)};
}

}  // namespace muster::trainer
