// Common parts of the two kernels of FlashAttention-2's backward pass on tensor cores;
// attention_backward.cu explains why there are two. Each block has a tile of one side (queries or
// keys), which stays in shared memory, and iterates over tiles of the other side. If two tiles of
// the other side fit, the next one is copied while the current one is multiplied.
#pragma once

#include "trainer_core/ops/cuda/attention/attention_bf16.cuh"

namespace muster::trainer::cuda {

// Sizes of the side over which a block iterates: kRows rows per tile, and kTiles tiles in shared
// memory. With these sizes, the rows of both sides and the gradients of biases fit in the shared
// memory of every device of compute capability 8.0 and newer.
template <int kHead>
struct Inner {
  static constexpr int kRows = kHead <= 64 ? 64 : kHead <= 128 ? 32 : 16;
  static constexpr int kTiles = kHead <= 128 ? 2 : 1;
  static constexpr int kWide = kRows / kMmaColumns;
  // Shared memory of either kernel: two tiles of the block's own side, and kTiles times two tiles
  // of the other side.
  static constexpr size_t kSharedBytes = HeadTile<kHead>::bytes(2 * (kBlockRows + kTiles * kRows));
};

// The values of a (query, key) pair: its probability p; the gradient of its score, ds = p (dp - D),
// times 1 - (score / cap)² with a soft cap; and the bucket of its distance.
struct Pair {
  float p, ds;
  int32_t bucket;
};
__device__ inline Pair pair_of(const AttentionLayer& layer, const Score& score, float dp, float lse,
                               float dot) {
  if (!score.seen) return {0, 0, 0};
  const float p = exp2f((score.value - lse) * kLog2E);
  float ds = p * (dp - dot);
  if (layer.cap > 0) {
    const float t = score.value / layer.cap;
    ds *= 1.0F - t * t;
  }
  return {p, ds, score.bucket};
}

template <class Gradient>
__device__ inline void store_gradient(Gradient* to, bool add, float value) {
  *to = from_float<Gradient>((add ? to_float(*to) : 0.0F) + value);
}

}  // namespace muster::trainer::cuda
