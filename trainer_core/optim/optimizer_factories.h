// The factories of the optimizers, and helpers that they share. Internal to optim.
#pragma once

#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "trainer_core/base/tensor_views.h"
#include "trainer_core/optim/optimizer.h"

namespace muster::trainer {

// Make the optimizers; see Optimizer::make().
std::unique_ptr<Optimizer> make_adamw(const OptimizerConfig& config, ShardLayout layout);
std::unique_ptr<Optimizer> make_adam_pax(const OptimizerConfig& config, ShardLayout layout);
std::unique_ptr<Optimizer> make_sgd(ShardLayout layout);
std::unique_ptr<Optimizer> make_adafactor(ShardLayout layout);

// Returns a view of elements [begin, begin + count) of a block.
inline Tensor part(std::span<float> block, int64_t begin, int64_t count) {
  return Tensor::f32(block.data() + begin, {count});
}
// Returns a view of the elements of a piece in a block with the layout of the parameters.
inline Tensor part(std::span<float> block, const ShardPiece& piece) {
  return part(block, piece.offset, piece.count);
}
inline Tensor part(const Tensor& block, int64_t begin, int64_t count) {
  return tensor_at(block, begin, {count});
}
inline Tensor part(const Tensor& block, const ShardPiece& piece) {
  return part(block, piece.offset, piece.count);
}

// Returns the root mean square of `elements` values whose squares add up to `squares`.
inline double rms(double squares, int64_t elements) {
  return std::sqrt(squares / static_cast<double>(elements));
}

// Adjacent elements with the same update rule. A range contains no padding.
struct ElementRange {
  int64_t begin = 0;
  int64_t count = 0;
  bool decay = true;  // weight decay applies
};
// Returns the ranges of a rank's shards, in order. `decays(spec)` states whether weight decay
// applies to a parameter.
template <class Decays>
std::vector<ElementRange> ranges_of(const ShardLayout& layout, const Decays& decays) {
  std::vector<ElementRange> ranges;
  for (const ShardPiece& piece : layout.pieces()) {
    const bool decay = decays(layout.table()[piece.param]);
    const bool extends = !ranges.empty() && ranges.back().decay == decay &&
                         ranges.back().begin + ranges.back().count == piece.offset;
    if (!extends) ranges.push_back({piece.offset, 0, decay});
    ranges.back().count += piece.count;
  }
  return ranges;
}

}  // namespace muster::trainer
