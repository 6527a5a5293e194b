// Relative positions as in T5 (Raffel et al., 2020, section 2.1): the distance from a query back to
// a key selects one of `count` buckets.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace muster::trainer {

// A mapping from distances to buckets. Each bucket of the first half has a single distance. Buckets
// of the second half are spaced logarithmically up to `max_distance`, and the last bucket also has
// all larger distances. Attention is causal, so keys after the query have no bucket.
struct RelativeBuckets {
  int32_t count = 0;           // number of buckets, at least 2; 0: no relative positions
  int32_t max_distance = 128;  // tokens

  constexpr bool exist() const { return count > 0; }

  // Returns the bucket of a distance, which never decreases as the distance grows. It is computed
  // in fp32, as in T5 and praxis. Requires distance >= 0.
  int32_t of(int64_t distance) const {
    const int32_t exact = count / 2;
    if (distance < exact) return static_cast<int32_t>(distance);
    if (distance >= max_distance) return count - 1;
    const auto near = static_cast<float>(exact);
    const float share = std::log(static_cast<float>(distance) / near) /
                        std::log(static_cast<float>(max_distance) / near);
    const auto beyond = static_cast<int32_t>(share * static_cast<float>(count - exact));
    return std::min(exact + beyond, count - 1);
  }

  friend bool operator==(const RelativeBuckets&, const RelativeBuckets&) = default;
};

}  // namespace muster::trainer
