// Attention's kernels by their launchers: FlashAttention-2's passes for any positions, in bf16 on tensor cores, in fp32 by multiply-adds.
// What runs where no library's kernel fits.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "trainer_core/ops/cuda/places.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer::cuda {

// Wider heads have no tile in shared memory.
constexpr int64_t kHeadDimMax = 256;
// Of a tile of queries where they are bf16; where they are fp32 cuda_attention_tile_rows() of ops/workspace.h, which is less.
constexpr int64_t kBf16QueryRows = 64;

// Keys and values inside wider rows: a head's are h columns from `column` on, the values K h behind the keys.
struct KeyRows {
  const void* data;
  int64_t width;
  int64_t column;
  Runs runs;
};

// What both passes know of a layer.
struct AttentionLayer {
  DType dtype;
  int64_t batch, heads, kv_heads, head_dim;
  float scale;
  float cap;              // 0: none
  int64_t window;         // 0: none
  bool extra_zero;        // see AttentionShape
  Runs queries;           // their positions
  const int32_t* starts;  // (B, S), or null
  const void* qkv;
  int64_t qkv_width;
  KeyRows keys;
  const float* bias;  // (H, buckets), or null
  Buckets buckets;
};

struct AttentionForward {
  AttentionLayer layer;
  bool sums;   // out is fp32
  bool merge;  // with what is in out and lse
  void* out;   // (B S, H h)
  float* lse;  // (B, H, S)
};
void attention_forward(cudaStream_t, const AttentionForward&);
void attention_forward_bf16(cudaStream_t, const AttentionForward&);  // which that calls for bf16

struct AttentionBackward {
  AttentionLayer layer;
  const void* out;
  const float* lse;
  const void* dout;
  bool add;  // to gradients, which are fp32 then
  void* d_query;
  int64_t d_query_width;
  void* d_keys;   // rows as those of `keys`
  float* d_bias;  // (B, tiles of queries, H, buckets), or null: each tile's part, written
  float* dots;    // (B, H, S), written: of each row the sum of dout out
};
void attention_backward(cudaStream_t, const AttentionBackward&);
// Which that calls for bf16, when dots are there.
void attention_d_query_bf16(cudaStream_t, const AttentionBackward&);
void attention_d_keys_bf16(cudaStream_t, const AttentionBackward&);

// See Ops::attention_cached: keys and values are caches (B, K, capacity, h).
struct AttentionCached {
  DType dtype;
  int64_t batch, seq_len, heads, kv_heads, head_dim;
  float scale, cap;
  int64_t window;
  bool extra_zero;
  int64_t position, capacity;
  const void* qkv;
  int64_t qkv_width;
  const float* bias;  // (H, buckets), or null
  Buckets buckets;
  void* keys;
  void* values;
  void* out;
};
void attention_cached(cudaStream_t, const AttentionCached&);

}  // namespace muster::trainer::cuda
