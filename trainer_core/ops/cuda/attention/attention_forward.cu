// FlashAttention-2's forward pass (Dao, 2023): an online softmax over tiles of keys, so that no S x
// S matrix of scores exists. A block has a tile of queries of one head. These are the fp32 kernels,
// without tensor cores.
#include "trainer_core/ops/cuda/attention/attention_tiles.cuh"

namespace muster::trainer::cuda {
namespace {

// grid (tiles of queries, H, B)
template <int kTile, int kHead>
__global__ void __launch_bounds__(kTile* kTile)
    forward_kernel(const __grid_constant__ AttentionForward args) {
  using Tiles = AttentionTiles<kTile, kHead>;
  __shared__ float queries[kTile * Tiles::kStride];
  __shared__ float rows[kTile * Tiles::kStride];  // keys, then their values
  __shared__ float probabilities[kTile * (kTile + 1)];
  const AttentionLayer& layer = args.layer;
  const int i = static_cast<int>(threadIdx.x) / kTile, j = static_cast<int>(threadIdx.x) % kTile;
  const int h = static_cast<int>(layer.head_dim);
  const int64_t count = layer.queries.count, key_count = layer.keys.runs.count;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t head = blockIdx.y, sequence = blockIdx.z;
  const int64_t kv_head = head / (layer.heads / layer.kv_heads);
  const int32_t* const starts = starts_of(layer, sequence);
  const float* const bias = bias_of(layer, head);
  const float* const qkv =
      static_cast<const float*>(layer.qkv) + sequence * count * layer.qkv_width;
  const float* const keys = static_cast<const float*>(layer.keys.data) +
                            sequence * key_count * layer.keys.width + layer.keys.column +
                            kv_head * h;
  const float* const values = keys + layer.kv_heads * h;

  const PositionBounds seen = seen_by(layer, starts, first, kTile).bounds();
  Tiles::load(qkv + head * h, layer.qkv_width, first, count, h, queries);
  const bool exists = first + i < count;
  const int64_t row = exists ? first + i : count - 1;
  const int64_t position = layer.queries.at(row), oldest = oldest_key(layer, starts, row);
  float* const lse = args.lse + (sequence * layer.heads + head) * count + row;
  float* const out =
      static_cast<float*>(args.out) + ((sequence * count + row) * layer.heads + head) * h;

  // The running softmax of row i, the same in all threads of the row; and the weighted sums of
  // values in columns j, j + kTile, …
  float peak = args.merge ? *lse : layer.extra_zero ? 0.0F : kMasked;
  float total = args.merge ? (peak <= kMasked ? 0.0F : 1.0F) : layer.extra_zero ? 1.0F : 0.0F;
  float sums[Tiles::kColumns];
  for (int c = 0; c < Tiles::kColumns; ++c) {
    const int column = j + c * kTile;
    sums[c] = args.merge && column < h ? out[column] : 0.0F;
  }
  for (int64_t key = 0; key < key_count; key += kTile) {
    if (!meet(seen, bounds_of(layer.keys.runs, key, kTile))) continue;  // uniform over the block
    // The queries are complete, and all threads have read the last values.
    __syncthreads();
    Tiles::load(keys, layer.keys.width, key, key_count, h, rows);
    __syncthreads();
    const Score score = key + j < key_count
                            ? score_of(layer, bias, oldest, position, layer.keys.runs.at(key + j),
                                       Tiles::dot(queries, i, rows, j, h))
                            : Score{false, 0, 0};
    const float new_peak = fmaxf(peak, warp_max(score.seen ? score.value : kMasked, kTile));
    const float p = score.seen ? expf(score.value - new_peak) : 0.0F;
    const float factor = expf(peak - new_peak);
    peak = new_peak;
    total = total * factor + warp_sum(p, kTile);
    probabilities[i * (kTile + 1) + j] = p;
    __syncthreads();  // all threads have read the keys
    Tiles::load(values, layer.keys.width, key, key_count, h, rows);
    __syncthreads();
    for (int c = 0; c < Tiles::kColumns; ++c) sums[c] *= factor;
    for (int k = 0; k < kTile; ++k) {
      const float weight = probabilities[i * (kTile + 1) + k];
      // A masked value may be NaN, and 0 times NaN is NaN.
      if (weight == 0) continue;
      for (int c = 0; c < Tiles::kColumns; ++c)
        sums[c] += weight * rows[k * Tiles::kStride + j + c * kTile];
    }
  }
  if (!exists) return;
  const bool any = !(peak <= kMasked);  // also true for NaN
  const float inverse = any ? 1.0F / total : 0.0F;
  for (int c = 0; c < Tiles::kColumns; ++c) {
    const int column = j + c * kTile;
    if (column < h) out[column] = sums[c] * inverse;
  }
  if (j == 0) *lse = any ? peak + logf(total) : kMasked;
}

template <int kTile, int kHead>
void start(cudaStream_t stream, const AttentionForward& args) {
  const AttentionLayer& layer = args.layer;
  const dim3 blocks(static_cast<unsigned>(ceil_div(layer.queries.count, kTile)),
                    static_cast<unsigned>(layer.heads), static_cast<unsigned>(layer.batch));
  launch(stream, blocks, kTile * kTile, forward_kernel<kTile, kHead>, args);
}

}  // namespace

void attention_forward(cudaStream_t stream, const AttentionForward& args) {
  if (args.layer.dtype == DType::kBf16) return attention_forward_bf16(stream, args);
  if (args.layer.head_dim <= 64) return start<32, 64>(stream, args);
  if (args.layer.head_dim <= 128) return start<32, 128>(stream, args);
  start<16, 256>(stream, args);
}

}  // namespace muster::trainer::cuda
