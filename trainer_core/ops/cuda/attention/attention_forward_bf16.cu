// FlashAttention-2's forward pass on tensor cores: a block has a tile of queries of one head.
// Values are copied while their keys are multiplied, and the next keys while the values are
// multiplied.
#include "trainer_core/ops/cuda/attention/attention_bf16.cuh"

namespace muster::trainer::cuda {
namespace {

// Keys per tile: fewer for wide heads, whose sums take more registers.
template <int kHead>
constexpr int kKeyRows = kHead <= 128 ? 64 : 32;
// Blocks per multiprocessor, between which its registers and shared memory are divided.
template <int kHead>
constexpr int kBlocks = kHead <= 64    ? 4
                        : kHead <= 128 ? 3
                                       : 2;

// One of a lane's two rows of queries: its running softmax, in powers of two.
struct SoftmaxRow {
  int64_t row, position, oldest;
  float peak, total;  // total: this lane's part of the row's sum
};

// Replaces the scores by their powers of two, and rescales the sums so far to the new peak.
template <int kWide, int kColumns>
__device__ inline void soften(int r, SoftmaxRow& row, float (&scores)[kWide][4],
                              float (&sums)[kColumns][4]) {
  float peak = -INFINITY;
#pragma unroll
  for (int j = 0; j < kWide; ++j) peak = fmaxf(peak, fmaxf(scores[j][2 * r], scores[j][2 * r + 1]));
  peak = fmaxf(row.peak, warp_max(peak, 4));
  const float factor = exp2f(row.peak - peak);
  row.peak = peak;
  row.total *= factor;
#pragma unroll
  for (int j = 0; j < kWide; ++j) {
#pragma unroll
    for (int e = 2 * r; e < 2 * r + 2; ++e) {
      scores[j][e] = exp2f(scores[j][e] - peak);
      row.total += scores[j][e];
    }
  }
#pragma unroll
  for (int j = 0; j < kColumns; ++j) sums[j][2 * r] *= factor, sums[j][2 * r + 1] *= factor;
}

// grid (tiles of queries, H, B)
template <class Out, int kHead>
__global__ void __launch_bounds__(kBlockThreads, kBlocks<kHead>)
    forward_kernel(const __grid_constant__ AttentionForward args) {
  using Tile = HeadTile<kHead>;
  constexpr int kKeys = kKeyRows<kHead>;
  Bf16* const queries = static_cast<Bf16*>(dynamic_shared());
  Bf16* const keys = queries + kBlockRows * Tile::kStride;
  Bf16* const values = keys + kKeys * Tile::kStride;
  const AttentionLayer& layer = args.layer;
  const Runs& runs = layer.keys.runs;
  const int64_t count = layer.queries.count;
  // Later queries have more keys, so their blocks start first.
  const int64_t first = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * kBlockRows;
  const int64_t head = blockIdx.y, sequence = blockIdx.z;
  const int64_t kv_head = head / (layer.heads / layer.kv_heads);
  const int32_t* const starts = starts_of(layer, sequence);
  const float* const bias = bias_of(layer, head);
  const HeadRows from_keys = key_rows(layer, sequence, kv_head, false);
  const HeadRows from_values = key_rows(layer, sequence, kv_head, true);
  const SeenKeys seen = seen_by(layer, starts, first, kBlockRows);
  const PositionBounds bounds = seen.bounds();
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * kMmaRows;
  const bool is_plain = bias == nullptr && layer.cap == 0;

  int64_t key = next_keys<kKeys>(runs, bounds, 0);
  Tile::template load_all<kBlockRows>(query_rows(layer, sequence, head), first, queries);
  if (key < runs.count) Tile::template load_seen<kKeys>(from_keys, key, runs, seen, keys);
  commit_copies();

  SoftmaxRow rows[2];
  // Peaks of the partial result that this one is merged with.
  float earlier[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t wanted = first + warp_row + fragment_row() + r * (kMmaRows / 2);
    SoftmaxRow& row = rows[r];
    row.row = wanted < count ? wanted : count - 1;
    row.position = layer.queries.at(row.row);
    row.oldest = oldest_key(layer, starts, row.row);
    row.peak = layer.extra_zero ? 0.0F : kMasked;
    row.total = layer.extra_zero ? 1.0F : 0.0F;
    if (args.merge) {
      const float lse = args.lse[(sequence * layer.heads + head) * count + row.row];
      row.peak = lse <= kMasked ? kMasked : lse * kLog2E;
      row.total = lse <= kMasked ? 0.0F : 1.0F;
    }
    earlier[r] = row.peak;
    if (fragment_column() != 0) row.total = 0;
  }

  float sums[kHead / kMmaColumns][4] = {};
  while (key < runs.count) {
    const int64_t next = next_keys<kKeys>(runs, bounds, key + kKeys);
    const bool whole = is_plain && key + kKeys <= runs.count &&
                       see_all(layer, starts, first, kBlockRows, bounds_of(runs, key, kKeys));
    wait_for_copies<0>();
    // Queries and keys are complete, and all threads have read the last values.
    __syncthreads();
    Tile::template load_seen<kKeys>(from_values, key, runs, seen, values);
    commit_copies();
    float scores[kKeys / kMmaColumns][4] = {};
    Tile::multiply_transposed(queries + warp_row * Tile::kStride, keys, scores);
    if (whole) {
#pragma unroll
      for (int j = 0; j < kKeys / kMmaColumns; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[j][e] *= layer.scale * kLog2E;
    } else {
#pragma unroll
      for (int j = 0; j < kKeys / kMmaColumns; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int64_t at = key + j * kMmaColumns + fragment_column() + e % 2;
          const SoftmaxRow& row = rows[e / 2];
          const Score score = at < runs.count ? score_of(layer, bias, row.oldest, row.position,
                                                         runs.at(at), scores[j][e])
                                              : Score{false, 0, 0};
          scores[j][e] = score.seen ? score.value * kLog2E : -INFINITY;
        }
      }
    }
    soften(0, rows[0], scores, sums);
    soften(1, rows[1], scores, sums);
    wait_for_copies<0>();
    __syncthreads();  // the values are complete, and all threads have read the keys
    if (next < runs.count) Tile::template load_seen<kKeys>(from_keys, next, runs, seen, keys);
    commit_copies();
    Tile::add_weighted(scores, values, sums);
    key = next;
  }
  wait_for_copies<0>();

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const SoftmaxRow& row = rows[r];
    const float total = warp_sum(row.total, 4);
    if (first + warp_row + fragment_row() + r * (kMmaRows / 2) >= count) continue;
    const bool any = total != 0;  // also true for NaN
    const float inverse = any ? 1.0F / total : 0.0F;
    const float weight = args.merge ? exp2f(earlier[r] - row.peak) * inverse : 0.0F;
    Out* const out = static_cast<Out*>(args.out) +
                     ((sequence * count + row.row) * layer.heads + head) * layer.head_dim;
#pragma unroll
    for (int j = 0; j < kHead / kMmaColumns; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = j * kMmaColumns + fragment_column() + e;
        if (column >= layer.head_dim) continue;
        const float before = args.merge ? weight * to_float(out[column]) : 0.0F;
        out[column] = from_float<Out>(before + sums[j][2 * r + e] * inverse);
      }
    }
    if (fragment_column() == 0)
      args.lse[(sequence * layer.heads + head) * count + row.row] =
          any ? (row.peak + log2f(total)) / kLog2E : kMasked;
  }
}

}  // namespace

void attention_forward_bf16(cudaStream_t stream, const AttentionForward& args) {
  with_kernel(args.sums, args.layer.head_dim, [&](auto number, auto columns) {
    constexpr int kHead = decltype(columns)::value;
    launch_with_shared(stream, query_blocks(args.layer), kBlockThreads,
                       HeadTile<kHead>::bytes(kBlockRows + 2 * kKeyRows<kHead>),
                       forward_kernel<decltype(number), kHead>, args);
  });
}

}  // namespace muster::trainer::cuda
