// The order of samples: a seeded bijection of 0 … n-1 without tables. A corpus of any size is
// shuffled as a whole, and any position of the order is computed in constant time. A Feistel
// network keyed by Philox over the next even power of two is applied repeatedly until the result is
// below n (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
#pragma once

#include <cstdint>

namespace muster::trainer {

// An immutable value; thread-safe.
class Permutation {
 public:
  Permutation(uint64_t n, uint64_t seed, uint64_t epoch);
  uint64_t operator()(uint64_t i) const;  // requires i < n

 private:
  uint64_t n_;
  uint64_t seed_;
  uint64_t epoch_;
  uint32_t half_bits_;
};

}  // namespace muster::trainer
