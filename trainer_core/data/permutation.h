// The order of samples: a bijection of 0 … n-1 that is computed from a seed, without a table. It
// shuffles a corpus of any size as a whole, and any position is computed in constant time. A
// Feistel network, keyed by Philox, permutes a domain of 4^b >= n values; it is applied repeatedly
// until the result is below n (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
#pragma once

#include <cstdint>

namespace muster::trainer {

// The order of one epoch. Immutable and thread-safe.
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
