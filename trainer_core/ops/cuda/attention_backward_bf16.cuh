// What the kernels of FlashAttention-2's backward pass on tensor cores share. They are two, as attention_backward.cu tells. The tile that a
// block has stays in shared memory; of the other side the next tile is copied while one is multiplied, where there is room for two.
#pragma once

#include "trainer_core/ops/cuda/attention_bf16.cuh"

namespace muster::trainer::cuda {

// Of the side that a block goes over: so many rows at once, and so many tiles of them in shared memory, that both sides' rows leave room on
// every device of 8.0 and newer, for biases' gradients, too.
template <int kHead>
struct Inner {
  static constexpr int kRows = kHead <= 64 ? 64 : kHead <= 128 ? 32 : 16;
  static constexpr int kTiles = kHead <= 128 ? 2 : 1;
  static constexpr int kWide = kRows / kMmaColumns;
  // Of both kernels: two tiles of the block's, and kTiles times two of these.
  static constexpr size_t kSharedBytes = HeadTile<kHead>::bytes(2 * (kBlockRows + kTiles * kRows));
};

// What a pair of a query and a key has: its probability and the gradient of its score, ds = p (dp - D), with a soft cap times
// 1 - (score / cap)². And the bucket of its distance.
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
