// The gradients of keys and values: a block has a tile of keys and iterates over the queries that
// attend to them, in all heads that share the keys.
#include "trainer_core/ops/cuda/attention/attention_backward_bf16.cuh"

namespace muster::trainer::cuda {
namespace {

// A tile of a head's queries.
struct QueryTile {
  // One past the last head if there are no more tiles.
  int64_t head, first;
};
// Returns the first tile, from `tile` on, with a query that attends to one of the keys.
template <int kQueries>
__device__ inline QueryTile next_queries(const AttentionLayer& layer, const int32_t* starts,
                                         const PositionBounds& keys, int64_t end, QueryTile tile) {
  const Runs& queries = layer.queries;
  for (; tile.head < end; ++tile.head, tile.first = 0) {
    while (tile.first < queries.count) {
      int64_t next = tile.first + kQueries;
      // Starts are read from memory; for half of all tiles the positions suffice.
      if (bounds_of(queries, tile.first, kQueries).high >= keys.low) {
        if (meet(seen_by(layer, starts, tile.first, kQueries).bounds(), keys)) return tile;
        // The keys are too old for this window, and later queries of the run attend to none that
        // are older.
        const int64_t run_end =
            tile.first < queries.first_count ? queries.first_count : queries.count;
        const int64_t last = run_end / kQueries * kQueries;
        next = last > next ? last : next;
      }
      tile.first = next;
    }
  }
  return tile;
}

// The columns of a head whose sums one block holds in registers; neighbouring blocks of the grid
// hold the other columns.
template <int kHead>
constexpr int kSumColumns = kHead <= 128 ? kHead : 128;

// grid (tiles of keys, times parts of their columns; K; B)
template <class Gradient, int kHead>
__global__ void __launch_bounds__(kBlockThreads)
    key_kernel(const __grid_constant__ AttentionBackward args) {
  using Tile = HeadTile<kHead>;
  constexpr int kQueries = Inner<kHead>::kRows, kTiles = Inner<kHead>::kTiles;
  constexpr int kWide = Inner<kHead>::kWide, kParts = kHead / kSumColumns<kHead>;
  // Per query of a tile: lse, D, and where its document begins.
  __shared__ float lse[kTiles][kQueries], dots[kTiles][kQueries];
  __shared__ int32_t begins[kTiles][kQueries];
  Bf16* const keys = static_cast<Bf16*>(dynamic_shared());
  Bf16* const values = keys + kBlockRows * Tile::kStride;
  // Queries, then their d_out, kTiles times.
  Bf16* const tiles = values + kBlockRows * Tile::kStride;
  const AttentionLayer& layer = args.layer;
  const Runs& runs = layer.keys.runs;
  const int64_t count = layer.queries.count;
  const int64_t first_key = static_cast<int64_t>(blockIdx.x) / kParts * kBlockRows;
  const int first_column = static_cast<int>(blockIdx.x) % kParts * kSumColumns<kHead>;
  const int64_t kv_head = blockIdx.y, sequence = blockIdx.z;
  const int64_t group = layer.heads / layer.kv_heads, end = (kv_head + 1) * group;
  const int32_t* const starts = starts_of(layer, sequence);
  const PositionBounds here = bounds_of(runs, first_key, kBlockRows);
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * kMmaRows;
  const bool is_plain = layer.bias == nullptr && layer.cap == 0;
  const bool all_exist = first_key + kBlockRows <= runs.count;
  const auto load = [&](const QueryTile& from, int tile) {
    Bf16* const to = tiles + tile * 2 * kQueries * Tile::kStride;
    Tile::template load_all<kQueries>(query_rows(layer, sequence, from.head), from.first, to);
    Tile::template load_all<kQueries>(out_rows(layer, args.dout, sequence, from.head), from.first,
                                      to + kQueries * Tile::kStride);
    const int thread = static_cast<int>(threadIdx.x);
    if (thread >= kQueries) return;
    const bool exists = from.first + thread < count;
    const int64_t number = (sequence * layer.heads + from.head) * count + from.first + thread;
    copy_async<4>(&lse[tile][thread], exists ? args.lse + number : args.lse, exists);
    copy_async<4>(&dots[tile][thread], exists ? args.dots + number : args.dots, exists);
    if (starts != nullptr)
      copy_async<4>(&begins[tile][thread], exists ? starts + from.first + thread : starts, exists);
  };

  QueryTile at = next_queries<kQueries>(layer, starts, here, end, {kv_head * group, 0});
  Tile::template load_all<kBlockRows>(key_rows(layer, sequence, kv_head, false), first_key, keys);
  Tile::template load_all<kBlockRows>(key_rows(layer, sequence, kv_head, true), first_key, values);
  if (at.head < end) load(at, 0);
  commit_copies();
  int64_t positions[2];
  bool exist[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t key = first_key + warp_row + fragment_row() + r * (kMmaRows / 2);
    exist[r] = key < runs.count;
    positions[r] = exist[r] ? runs.at(key) : 0;
  }

  float d_key[kSumColumns<kHead> / kMmaColumns][4] = {};
  float d_value[kSumColumns<kHead> / kMmaColumns][4] = {};
  for (int tile = 0; at.head < end;) {
    const QueryTile next =
        next_queries<kQueries>(layer, starts, here, end, {at.head, at.first + kQueries});
    if (kTiles == 2 && next.head < end) load(next, tile ^ 1);
    if (kTiles == 2) commit_copies();
    const bool whole = is_plain && all_exist && see_all(layer, starts, at.first, kQueries, here);
    const float* const bias = bias_of(layer, at.head);
    wait_for_copies<kTiles - 1>();
    __syncthreads();  // the copies of the keys and of this tile are complete
    const Bf16* const queries = tiles + tile * 2 * kQueries * Tile::kStride;
    const Bf16* const d_outs = queries + kQueries * Tile::kStride;
    // (keys, queries): the transposes of those in query_kernel.
    float scores[kWide][4] = {}, d_scores[kWide][4] = {};
    Tile::multiply_transposed(keys + warp_row * Tile::kStride, queries, scores);
    Tile::multiply_transposed(values + warp_row * Tile::kStride, d_outs, d_scores);
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int column = j * kMmaColumns + fragment_column() + c;
        const int64_t row = at.first + column;
        const float row_lse = lse[tile][column], dot = dots[tile][column];
        if (whole) {
#pragma unroll
          for (int e = c; e < 4; e += 2) {
            scores[j][e] = exp2f((scores[j][e] * layer.scale - row_lse) * kLog2E);
            d_scores[j][e] = scores[j][e] * (d_scores[j][e] - dot);
          }
          continue;
        }
        const bool exists = row < count;
        const int64_t position = exists ? layer.queries.at(row) : 0;
        const int64_t oldest =
            oldest_key(layer, position, starts == nullptr ? 0 : begins[tile][column]);
#pragma unroll
        for (int e = c; e < 4; e += 2) {
          const Score score = exists && exist[e / 2] ? score_of(layer, bias, oldest, position,
                                                                positions[e / 2], scores[j][e])
                                                     : Score{false, 0, 0};
          const Pair pair = pair_of(layer, score, d_scores[j][e], row_lse, dot);
          scores[j][e] = pair.p;
          d_scores[j][e] = pair.ds;
        }
      }
    }
    Tile::add_weighted(scores, d_outs + first_column, d_value);
    Tile::add_weighted(d_scores, queries + first_column, d_key);
    __syncthreads();  // all threads have read this tile
    if (kTiles == 1 && next.head < end) load(next, 0);
    if (kTiles == 1) commit_copies();
    at = next;
    if (kTiles == 2) tile ^= 1;
  }
  wait_for_copies<0>();

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t key = first_key + warp_row + fragment_row() + r * (kMmaRows / 2);
    if (!exist[r]) continue;
    const int64_t h = layer.head_dim;
    Gradient* const to = static_cast<Gradient*>(args.d_keys) +
                         (sequence * runs.count + key) * layer.keys.width + layer.keys.column +
                         kv_head * h;
#pragma unroll
    for (int j = 0; j < kSumColumns<kHead> / kMmaColumns; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = first_column + j * kMmaColumns + fragment_column() + e;
        if (column >= h) continue;
        store_gradient(to + column, args.add, d_key[j][2 * r + e] * layer.scale);
        store_gradient(to + layer.kv_heads * h + column, args.add, d_value[j][2 * r + e]);
      }
    }
  }
}

}  // namespace

void attention_d_keys_bf16(cudaStream_t stream, const AttentionBackward& args) {
  const AttentionLayer& layer = args.layer;
  with_kernel(args.add, layer.head_dim, [&](auto number, auto columns) {
    constexpr int kHead = decltype(columns)::value;
    const dim3 blocks(static_cast<unsigned>(ceil_div(layer.keys.runs.count, kBlockRows) *
                                            (kHead / kSumColumns<kHead>)),
                      static_cast<unsigned>(layer.kv_heads), static_cast<unsigned>(layer.batch));
    launch_with_shared(stream, blocks, kBlockThreads, Inner<kHead>::kSharedBytes,
                       key_kernel<decltype(number), kHead>, args);
  });
}

}  // namespace muster::trainer::cuda
