#include "trainer_core/base/relative_buckets.h"

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

// The first distance of each bucket, by hand: up to 16 each its own, then the smallest whole number
// from 16 * 8^(k / 16) on.
TEST(RelativeBuckets, AreT5s) {
  constexpr int64_t kFirst[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113};
  const RelativeBuckets buckets{.count = 32, .max_distance = 128};
  int32_t expected = -1;
  for (int64_t distance = 0; distance <= 5000; ++distance) {
    if (expected < 31 && distance == kFirst[expected + 1]) ++expected;
    ASSERT_EQ(buckets.of(distance), expected) << "distance " << distance;
  }
}

// For any parameters, buckets are nondecreasing and the last one has all distances from
// max_distance on.
TEST(RelativeBuckets, NeverFall) {
  for (const int32_t count : {2, 3, 7, 32, 64}) {
    for (const int32_t more : {1, 2, 17, 1000}) {
      const RelativeBuckets buckets{.count = count, .max_distance = count / 2 + more};
      int32_t last = 0;
      for (int64_t distance = 0; distance < buckets.max_distance + 3; ++distance) {
        ASSERT_GE(buckets.of(distance), last);
        ASSERT_LT(buckets.of(distance), count);
        last = buckets.of(distance);
      }
      EXPECT_EQ(last, count - 1);
    }
  }
}

}  // namespace
}  // namespace muster::trainer
