// Makers of the optimizers of optimizer.h, and what their files share.
#pragma once

#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "trainer_core/optim/optimizer.h"

namespace muster::trainer {

std::unique_ptr<Optimizer> make_adamw(const OptimizerConfig& config, ShardLayout layout);
std::unique_ptr<Optimizer> make_adam_pax(const OptimizerConfig& config, ShardLayout layout);
std::unique_ptr<Optimizer> make_sgd(ShardLayout layout);
std::unique_ptr<Optimizer> make_adafactor(ShardLayout layout);

// Elements [begin, begin + count) of a block.
inline Tensor part(std::span<float> block, int64_t begin, int64_t count) {
  return Tensor::f32(block.data() + begin, {count});
}
// A piece's elements of one that is laid out as the parameters'.
inline Tensor part(std::span<float> block, const ShardPiece& piece) {
  return part(block, piece.offset, piece.count);
}

// The root of the mean of `elements` squares.
inline double rms(double squares, int64_t elements) {
  return std::sqrt(squares / static_cast<double>(elements));
}

// Neighbours in memory that are updated alike. Padding is in none of them.
struct ElementRange {
  int64_t begin = 0;
  int64_t count = 0;
  bool decay = true;
};
// `decays(spec)` tells parameters apart.
template <class Decays>
std::vector<ElementRange> ranges_of(const ShardLayout& layout, const Decays& decays) {
  std::vector<ElementRange> ranges;
  for (const ShardPiece& piece : layout.pieces()) {
    const bool decay = decays(layout.table()[piece.param]);
    const bool goes_on = !ranges.empty() && ranges.back().decay == decay &&
                         ranges.back().begin + ranges.back().count == piece.offset;
    if (!goes_on) ranges.push_back({piece.offset, 0, decay});
    ranges.back().count += piece.count;
  }
  return ranges;
}

}  // namespace muster::trainer
