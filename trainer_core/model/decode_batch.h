// The arguments of a decoding call.
#pragma once

#include <cstdint>
#include <span>

namespace muster::trainer {

// The R rows of a decoding call: new tokens of N sequences. All spans are in host memory.
struct DecodeBatch {
  std::span<const int32_t> tokens;     // (R) ids below V
  std::span<const int32_t> sequences;  // (R) the row's sequence, below N
  std::span<const int32_t> positions;  // (R) the row's position in its sequence
  // (N, CacheSize::blocks_per_sequence()) the blocks of each sequence, in the order of positions
  std::span<const int32_t> blocks;
  // (R) the row's adapter, an index in TransformerPlan::served; -1: the base alone. Empty: the base
  // for all rows. Adjacent rows with the same adapter are computed together.
  std::span<const int32_t> adapters = {};
};

}  // namespace muster::trainer
