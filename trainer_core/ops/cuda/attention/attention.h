// Launchers of the built-in attention kernels, which compute the attention that cuDNN does not
// support. They implement the forward and backward passes of FlashAttention-2 for any positions, in
// bf16 on tensor cores and in fp32 by multiply-adds.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "trainer_core/ops/cuda/device/device_token_rows.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer::cuda {

// Maximum width of a head: a tile of wider heads does not fit in shared memory.
constexpr int64_t kHeadDimMax = 256;
// Number of rows of a tile of bf16 queries. A tile of fp32 queries has fewer rows:
// cuda_attention_tile_rows() in ops/workspace.h.
constexpr int64_t kBf16QueryRows = 64;

// Keys and values inside wider rows. The h columns of keys of key/value head k begin at `column` +
// k h; its values begin K h columns after its keys.
struct KeyRows {
  const void* data;
  int64_t width;
  int64_t column;
  Runs runs;
};

// The arguments that both passes share.
struct AttentionLayer {
  DType dtype;
  int64_t batch, heads, kv_heads, head_dim;
  float scale;
  float cap;              // 0: none
  int64_t window;         // 0: none
  bool extra_zero;        // see AttentionShape
  Runs queries;           // positions of the queries
  const int32_t* starts;  // (B, S), or null
  const void* qkv;
  int64_t qkv_width;
  KeyRows keys;
  const float* bias;  // (H, buckets), or null
  Buckets buckets;
};

struct AttentionForward {
  AttentionLayer layer;
  bool sums;  // true: out is fp32, so that partial results can be merged
  // True: merge with the partial result that is in out and lse.
  bool merge;
  void* out;   // (B S, H h)
  float* lse;  // (B, H, S)
};
void attention_forward(cudaStream_t, const AttentionForward&);
// Launches the bf16 kernel. Called by attention_forward().
void attention_forward_bf16(cudaStream_t, const AttentionForward&);

struct AttentionBackward {
  AttentionLayer layer;
  const void* out;
  const float* lse;
  const void* dout;
  bool add;  // true: add to the gradients, which are fp32 then
  void* d_query;
  int64_t d_query_width;
  void* d_keys;  // rows laid out like those of `keys`
  // (B, tiles of queries, H, buckets), or null. Output: the gradient's part from each tile of
  // queries.
  float* d_bias;
  // (B, H, S). Output: the dot product of dout and out for each row.
  float* dots;
};
void attention_backward(cudaStream_t, const AttentionBackward&);
// Launch the bf16 kernels. Called by attention_backward(), after it has computed `dots`.
void attention_d_query_bf16(cudaStream_t, const AttentionBackward&);
void attention_d_keys_bf16(cudaStream_t, const AttentionBackward&);

// Arguments of Ops::attention_paged. keys and values are caches (blocks, K, P, h) of `dtype`, or of
// int8 with scales (blocks, K, P).
struct AttentionPaged {
  DType dtype;
  int64_t rows, heads, kv_heads, head_dim;
  float scale, cap;
  int64_t window;
  bool extra_zero;
  const int32_t* sequences;  // (R)
  const int32_t* positions;  // (R)
  const int32_t* blocks;     // (N, M)
  int64_t blocks_per_sequence, block_positions;
  const void* qkv;
  int64_t qkv_width;
  const float* bias;  // (H, buckets), or null
  Buckets buckets;
  void* keys;
  void* values;
  float* key_scales;  // null: the cache is not int8
  float* value_scales;
  void* out;
};
void attention_paged(cudaStream_t, const AttentionPaged&);

}  // namespace muster::trainer::cuda
