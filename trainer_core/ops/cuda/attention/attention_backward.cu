// FlashAttention-2's backward pass: recomputes the scores tile by tile from the saved logsumexp.
// One kernel holds a tile of queries and iterates over its keys, for the gradients of queries and
// of biases; the other holds a tile of keys and iterates over the queries of all heads that share
// them. One block thus sums each gradient in a fixed order, without atomic additions, at the price
// of computing the scores twice. A third kernel computes D for both beforehand. The first two are
// for fp32 and use no tensor cores.
#include "trainer_core/ops/cuda/attention/attention_tiles.cuh"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer::cuda {
namespace {

// Rows of a tile: four such tiles are in shared memory at once.
constexpr int kRows = 16, kWideRows = 8;
constexpr int64_t kWide = 128;  // heads wider than this use kWideRows
static_assert(cuda_attention_tile_rows(kWide) == kRows &&
              cuda_attention_tile_rows(kWide + 1) == kWideRows);

// The values of a (query, key) pair: its probability, the gradient of its score, and the bucket of
// its distance.
struct Pair {
  float p, ds;
  int32_t bucket;  // -1: the query does not attend to the key
};

// State of one query's row, the same in all threads of the row.
struct QueryRow {
  bool exists;
  int64_t position, oldest;
  float lse, dot;
};

__device__ inline QueryRow load_query_row(const AttentionBackward& args, const int32_t* starts,
                                          int64_t sequence, int64_t head, int64_t wanted) {
  const AttentionLayer& layer = args.layer;
  const int64_t count = layer.queries.count;
  const bool exists = wanted < count;
  const int64_t row = exists ? wanted : count - 1;
  const int64_t number = (sequence * layer.heads + head) * count + row;
  return {exists, layer.queries.at(row), oldest_key(layer, starts, row), args.lse[number],
          args.dots[number]};
}

// grid-stride over warps: computes D, the sum of dout out, of each row of (B, H, S).
template <class T>
__global__ void dots_kernel(const __grid_constant__ AttentionBackward args) {
  const AttentionLayer& layer = args.layer;
  const int64_t count = layer.queries.count, h = layer.head_dim;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t i = global_index() / kWarp; i < layer.batch * layer.heads * count;
       i += global_count() / kWarp) {
    const int64_t row = i % count, head = i / count % layer.heads,
                  sequence = i / count / layer.heads;
    const int64_t at = ((sequence * count + row) * layer.heads + head) * h;
    float dot = 0;
    for (int64_t column = lane; column < h; column += kWarp)
      dot += to_float(static_cast<const T*>(args.dout)[at + column]) *
             to_float(static_cast<const T*>(args.out)[at + column]);
    dot = warp_sum(dot);
    if (lane == 0) args.dots[i] = dot;
  }
}

// Computes the pair of query row i of the tiles `query` and `d_out` and key row j of `keys` and
// `values`: ds = p (dp - D), with a soft cap times 1 - (score / cap)².
template <class Tiles>
__device__ inline Pair pair_of(const AttentionLayer& layer, const float* bias, const QueryRow& row,
                               bool key_exists, int64_t key, int i, int j, const float* query,
                               const float* d_out, const float* keys, const float* values) {
  const int h = static_cast<int>(layer.head_dim);
  if (!row.exists || !key_exists) return {0, 0, -1};
  const Score score =
      score_of(layer, bias, row.oldest, row.position, key, Tiles::dot(query, i, keys, j, h));
  if (!score.seen) return {0, 0, -1};
  const float p = expf(score.value - row.lse);
  float ds = p * (Tiles::dot(d_out, i, values, j, h) - row.dot);
  if (layer.cap > 0) {
    const float t = score.value / layer.cap;
    ds *= 1.0F - t * t;
  }
  return {p, ds, bias == nullptr ? 0 : layer.buckets.bucket(row.position - key)};
}

// grid (tiles of queries, H, B)
template <int kTile, int kHead>
__global__ void __launch_bounds__(kTile* kTile)
    query_kernel(const __grid_constant__ AttentionBackward args) {
  using Tiles = AttentionTiles<kTile, kHead>;
  __shared__ float query[kTile * Tiles::kStride], d_out[kTile * Tiles::kStride];
  __shared__ float keys[kTile * Tiles::kStride], values[kTile * Tiles::kStride];
  __shared__ float d_scores[kTile * kTile];
  __shared__ int32_t buckets[kTile * kTile];
  __shared__ float d_bias[Buckets::kMax];
  const AttentionLayer& layer = args.layer;
  const int thread = static_cast<int>(threadIdx.x), i = thread / kTile, j = thread % kTile;
  const int h = static_cast<int>(layer.head_dim);
  const int64_t count = layer.queries.count, key_count = layer.keys.runs.count;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t head = blockIdx.y, sequence = blockIdx.z;
  const int64_t kv_head = head / (layer.heads / layer.kv_heads);
  const int32_t* const starts = starts_of(layer, sequence);
  const float* const bias = bias_of(layer, head);
  const float* const key_rows = static_cast<const float*>(layer.keys.data) +
                                sequence * key_count * layer.keys.width + layer.keys.column +
                                kv_head * h;
  Tiles::load(static_cast<const float*>(layer.qkv) + sequence * count * layer.qkv_width + head * h,
              layer.qkv_width, first, count, h, query);
  Tiles::load(static_cast<const float*>(args.dout) + (sequence * count * layer.heads + head) * h,
              layer.heads * h, first, count, h, d_out);
  for (int b = thread; b < Buckets::kMax; b += kTile * kTile) d_bias[b] = 0;
  __syncthreads();
  const QueryRow row = load_query_row(args, starts, sequence, head, first + i);
  const PositionBounds seen = seen_by(layer, starts, first, kTile).bounds();
  float sums[Tiles::kColumns] = {};
  for (int64_t key = 0; key < key_count; key += kTile) {
    if (!meet(seen, bounds_of(layer.keys.runs, key, kTile))) continue;  // uniform over the block
    __syncthreads();  // other threads may still read the last tile
    Tiles::load(key_rows, layer.keys.width, key, key_count, h, keys);
    Tiles::load(key_rows + layer.kv_heads * h, layer.keys.width, key, key_count, h, values);
    __syncthreads();
    const bool key_exists = key + j < key_count;
    const Pair pair =
        pair_of<Tiles>(layer, bias, row, key_exists, key_exists ? layer.keys.runs.at(key + j) : 0,
                       i, j, query, d_out, keys, values);
    d_scores[thread] = pair.ds;
    buckets[thread] = pair.bucket;
    __syncthreads();
    for (int k = 0; k < kTile; ++k) {
      const float weight = d_scores[i * kTile + k];
      if (weight == 0) continue;  // a masked value may be NaN, and 0 times NaN is NaN
      for (int c = 0; c < Tiles::kColumns; ++c)
        sums[c] += weight * keys[k * Tiles::kStride + j + c * kTile];
    }
    if (args.d_bias == nullptr) continue;
    for (int b = thread; b < layer.buckets.count; b += kTile * kTile) {
      float sum = d_bias[b];
      for (int pair_of_tile = 0; pair_of_tile < kTile * kTile; ++pair_of_tile)
        if (buckets[pair_of_tile] == b) sum += d_scores[pair_of_tile];
      d_bias[b] = sum;
    }
  }
  if (args.d_bias != nullptr) {
    // Each thread has already summed its own buckets.
    float* const part = args.d_bias + ((sequence * gridDim.x + blockIdx.x) * layer.heads + head) *
                                          layer.buckets.count;
    for (int b = thread; b < layer.buckets.count; b += kTile * kTile) part[b] = d_bias[b];
  }
  if (!row.exists) return;
  float* const to = static_cast<float*>(args.d_query) +
                    (sequence * count + first + i) * args.d_query_width + head * h;
  for (int c = 0; c < Tiles::kColumns; ++c) {
    const int column = j + c * kTile;
    if (column >= h) continue;
    const float before = args.add ? to[column] : 0.0F;
    to[column] = before + sums[c] * layer.scale;
  }
}

// grid (tiles of keys, K, B)
template <int kTile, int kHead>
__global__ void __launch_bounds__(kTile* kTile)
    key_kernel(const __grid_constant__ AttentionBackward args) {
  using Tiles = AttentionTiles<kTile, kHead>;
  __shared__ float query[kTile * Tiles::kStride], d_out[kTile * Tiles::kStride];
  __shared__ float keys[kTile * Tiles::kStride], values[kTile * Tiles::kStride];
  __shared__ float probabilities[kTile * kTile], d_scores[kTile * kTile];
  const AttentionLayer& layer = args.layer;
  const int thread = static_cast<int>(threadIdx.x), i = thread / kTile, j = thread % kTile;
  const int h = static_cast<int>(layer.head_dim);
  const int64_t count = layer.queries.count, key_count = layer.keys.runs.count;
  const int64_t first_key = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t kv_head = blockIdx.y, sequence = blockIdx.z;
  const int64_t group = layer.heads / layer.kv_heads;
  const int32_t* const starts = starts_of(layer, sequence);
  const int64_t columns = layer.keys.column + kv_head * h;
  const float* const key_rows = static_cast<const float*>(layer.keys.data) +
                                sequence * key_count * layer.keys.width + columns;
  Tiles::load(key_rows, layer.keys.width, first_key, key_count, h, keys);
  Tiles::load(key_rows + layer.kv_heads * h, layer.keys.width, first_key, key_count, h, values);
  const bool key_exists = first_key + j < key_count;
  const int64_t key = key_exists ? layer.keys.runs.at(first_key + j) : 0;
  const PositionBounds here = bounds_of(layer.keys.runs, first_key, kTile);
  // Gradients of key row i, columns j, j + kTile, …
  float d_key[Tiles::kColumns] = {}, d_value[Tiles::kColumns] = {};
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const float* const bias = bias_of(layer, head);
    for (int64_t first = 0; first < count; first += kTile) {
      if (!meet(seen_by(layer, starts, first, kTile).bounds(), here))
        continue;       // uniform over the block
      __syncthreads();  // other threads may still read the last tile
      Tiles::load(
          static_cast<const float*>(layer.qkv) + sequence * count * layer.qkv_width + head * h,
          layer.qkv_width, first, count, h, query);
      Tiles::load(
          static_cast<const float*>(args.dout) + (sequence * count * layer.heads + head) * h,
          layer.heads * h, first, count, h, d_out);
      __syncthreads();
      const QueryRow row = load_query_row(args, starts, sequence, head, first + i);
      const Pair pair =
          pair_of<Tiles>(layer, bias, row, key_exists, key, i, j, query, d_out, keys, values);
      probabilities[thread] = pair.p;
      d_scores[thread] = pair.ds;
      __syncthreads();
      for (int k = 0; k < kTile; ++k) {
        const float p = probabilities[k * kTile + i], ds = d_scores[k * kTile + i];
        for (int c = 0; c < Tiles::kColumns; ++c) {
          d_value[c] += p * d_out[k * Tiles::kStride + j + c * kTile];
          d_key[c] += ds * query[k * Tiles::kStride + j + c * kTile];
        }
      }
    }
  }
  if (first_key + i >= key_count) return;
  float* const to = static_cast<float*>(args.d_keys) +
                    (sequence * key_count + first_key + i) * layer.keys.width + columns;
  for (int c = 0; c < Tiles::kColumns; ++c) {
    const int column = j + c * kTile;
    if (column >= h) continue;
    float* const value = to + layer.kv_heads * h + column;
    const float key_before = args.add ? to[column] : 0.0F;
    const float value_before = args.add ? *value : 0.0F;
    to[column] = key_before + d_key[c] * layer.scale;
    *value = value_before + d_value[c];
  }
}

template <int kTile, int kHead>
void start(cudaStream_t stream, const AttentionBackward& args) {
  const AttentionLayer& layer = args.layer;
  const auto grid = [&](int64_t rows, int64_t heads) {
    return dim3(static_cast<unsigned>(ceil_div(rows, kTile)), static_cast<unsigned>(heads),
                static_cast<unsigned>(layer.batch));
  };
  launch(stream, grid(layer.queries.count, layer.heads), kTile * kTile, query_kernel<kTile, kHead>,
         args);
  launch(stream, grid(layer.keys.runs.count, layer.kv_heads), kTile * kTile,
         key_kernel<kTile, kHead>, args);
}

}  // namespace

void attention_backward(cudaStream_t stream, const AttentionBackward& args) {
  const AttentionLayer& layer = args.layer;
  const int64_t rows = layer.batch * layer.heads * layer.queries.count;
  with_type(layer.dtype, [&](auto number) {
    launch(stream, blocks_for(rows * kWarp), kThreads, dots_kernel<decltype(number)>, args);
  });
  if (layer.dtype == DType::kBf16) {
    attention_d_query_bf16(stream, args);
    return attention_d_keys_bf16(stream, args);
  }
  if (layer.head_dim <= 64) return start<kRows, 64>(stream, args);
  if (layer.head_dim <= kWide) return start<kRows, kWide>(stream, args);
  start<kWideRows, kHeadDimMax>(stream, args);
}

}  // namespace muster::trainer::cuda
