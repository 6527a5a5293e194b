// The additions of every backend. Ranks are always added in rank order, so a sum depends on the
// group's size alone and `local` and `gloo` agree bit for bit.
#pragma once

#include <cstddef>
#include <span>

namespace muster::trainer {

// sum[i] += term[i]
inline void add_to(std::span<float> sum, const float* term) {
  float* out = sum.data();
  const size_t count = sum.size();
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) out[i] += term[i];
}

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
