// T5's relative positions (Raffel et al., 2020, section 2.1): the distance from a query back to a
// key, in buckets.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace muster::trainer {

// The first half of the buckets are single distances, the others widen with the logarithm up to
// `max_distance`, and the last one has all larger distances. Causal: later keys have no bucket.
struct RelativeBuckets {
  int32_t count = 0;  // at least 2; 0: no relative positions
  int32_t max_distance = 128;

  constexpr bool exist() const { return count > 0; }

  // Returns the bucket; nondecreasing in the distance. Computed in fp32, as in T5 and praxis.
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
