// FlashAttention-2's backward pass on tensor cores, in the two kernels that attention_backward.cu tells of. The tile that a block has stays
// in shared memory; of the other side the next tile is copied while one is multiplied, where there is room for two.
#include "trainer_core/ops/cuda/attention_bf16.cuh"

namespace muster::trainer::cuda {
namespace {

// Of the side that a block goes over: so many rows at once, and so many tiles of them in shared memory, that both sides' rows leave room on
// every device.
template <int kHead>
struct Inner {
  static constexpr int kRows = kHead <= 64 ? 64 : kHead <= 128 ? 32 : 16;
  static constexpr int kTiles = kHead <= 128 ? 2 : 1;
  static constexpr int kWide = kRows / kMmaColumns;
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

// The bias's gradient of a tile of queries: the scores' gradients of a tile of keys with their buckets, and each row's sums by bucket. A
// thread adds up its row, and each bucket's sum goes over the rows at the end: no order depends on time.
template <int kKeys>
class BiasGradient {
 public:
  static size_t bytes(int32_t buckets) {
    if (buckets == 0) return 0;
    return kBlockRows * (kStride * (sizeof(float) + sizeof(int32_t)) + row_of(buckets) * 4);
  }
  __device__ BiasGradient(void* memory, int32_t buckets)
      : scores_(static_cast<float*>(memory)),
        places_(reinterpret_cast<int32_t*>(scores_ + kBlockRows * kStride)),
        sums_(reinterpret_cast<float*>(places_ + kBlockRows * kStride)),
        buckets_(buckets) {}

  __device__ void clear() {
    for (int i = static_cast<int>(threadIdx.x); i < kBlockRows * row_of(buckets_);
         i += kBlockThreads)
      sums_[i] = 0;
  }
  __device__ void put(int row, int column, const Pair& pair) {
    scores_[row * kStride + column] = pair.ds;
    places_[row * kStride + column] = pair.bucket;
  }
  // All of a warp, after it has put its rows.
  __device__ void add_rows() {
    __syncwarp();
    const int lane = lane_of();
    if (lane < kMmaRows) {
      const int row = static_cast<int>(threadIdx.x) / kWarp * kMmaRows + lane;
      for (int column = 0; column < kKeys; ++column)
        sums_[row * row_of(buckets_) + places_[row * kStride + column]] +=
            scores_[row * kStride + column];
    }
    __syncwarp();
  }
  __device__ void store(float* to) const {
    for (int bucket = static_cast<int>(threadIdx.x); bucket < buckets_; bucket += kBlockThreads) {
      float sum = 0;
      for (int row = 0; row < kBlockRows; ++row) sum += sums_[row * row_of(buckets_) + bucket];
      to[bucket] = sum;
    }
  }

 private:
  // Odd, so that rows begin in different banks.
  static constexpr int kStride = kKeys + 1;
  __host__ __device__ static int row_of(int32_t buckets) { return buckets | 1; }

  float* const scores_;
  int32_t* const places_;
  float* const sums_;
  const int32_t buckets_;
};

// grid (tiles of queries, H, B)
template <class Gradient, int kHead>
__global__ void __launch_bounds__(kBlockThreads)
    query_kernel(const __grid_constant__ AttentionBackward args) {
  using Tile = HeadTile<kHead>;
  constexpr int kKeys = Inner<kHead>::kRows, kTiles = Inner<kHead>::kTiles;
  Bf16* const queries = static_cast<Bf16*>(dynamic_shared());
  Bf16* const d_outs = queries + kBlockRows * Tile::kStride;
  Bf16* const tiles = d_outs + kBlockRows * Tile::kStride;  // keys, then values, kTiles times
  const AttentionLayer& layer = args.layer;
  BiasGradient<kKeys> d_bias(tiles + kTiles * 2 * kKeys * Tile::kStride, layer.buckets.count);
  const Runs& runs = layer.keys.runs;
  const int64_t count = layer.queries.count;
  // Later queries have more keys: they begin first.
  const int64_t tile_number = gridDim.x - 1 - blockIdx.x, first = tile_number * kBlockRows;
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
  const auto load = [&](int64_t key, int tile) {
    Bf16* const to = tiles + tile * 2 * kKeys * Tile::kStride;
    Tile::template load_seen<kKeys>(from_keys, key, runs, seen, to);
    Tile::template load_seen<kKeys>(from_values, key, runs, seen, to + kKeys * Tile::kStride);
  };

  int64_t key = next_keys<kKeys>(runs, bounds, 0);
  Tile::template load_all<kBlockRows>(query_rows(layer, sequence, head), first, queries);
  Tile::template load_all<kBlockRows>(out_rows(layer, args.dout, sequence, head), first, d_outs);
  if (key < runs.count) load(key, 0);
  commit_copies();
  if (args.d_bias != nullptr) d_bias.clear();

  int64_t positions[2], oldest[2];
  float lse[2], dots[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t wanted = first + warp_row + fragment_row() + r * (kMmaRows / 2);
    const int64_t row = wanted < count ? wanted : count - 1;
    positions[r] = layer.queries.at(row);
    oldest[r] = oldest_key(layer, starts, row);
    // A row that does not exist is zeros, and adds nothing to the biases' gradient.
    if (wanted >= count) oldest[r] = INT64_MAX;
    const int64_t number = (sequence * layer.heads + head) * count + row;
    lse[r] = args.lse[number];
    dots[r] = args.dots[number];
  }

  float sums[kHead / kMmaColumns][4] = {};
  for (int tile = 0; key < runs.count;) {
    const int64_t next = next_keys<kKeys>(runs, bounds, key + kKeys);
    if (kTiles == 2 && next < runs.count) load(next, tile ^ 1);
    if (kTiles == 2) commit_copies();
    const bool whole = is_plain && key + kKeys <= runs.count &&
                       see_all(layer, starts, first, kBlockRows, bounds_of(runs, key, kKeys));
    wait_for_copies<kTiles - 1>();
    __syncthreads();  // queries and this tile are there
    const Bf16* const keys = tiles + tile * 2 * kKeys * Tile::kStride;
    float scores[Inner<kHead>::kWide][4] = {}, d_scores[Inner<kHead>::kWide][4] = {};
    Tile::add_products(queries + warp_row * Tile::kStride, keys, scores);
    Tile::add_products(d_outs + warp_row * Tile::kStride, keys + kKeys * Tile::kStride, d_scores);
    if (whole) {
#pragma unroll
      for (int j = 0; j < Inner<kHead>::kWide; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float p = exp2f((scores[j][e] * layer.scale - lse[e / 2]) * kLog2E);
          d_scores[j][e] = p * (d_scores[j][e] - dots[e / 2]);
        }
      }
    } else {
#pragma unroll
      for (int j = 0; j < Inner<kHead>::kWide; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int column = j * kMmaColumns + fragment_column() + e % 2;
          const Score score = key + column < runs.count
                                  ? score_of(layer, bias, oldest[e / 2], positions[e / 2],
                                             runs.at(key + column), scores[j][e])
                                  : Score{false, 0, 0};
          const Pair pair = pair_of(layer, score, d_scores[j][e], lse[e / 2], dots[e / 2]);
          d_scores[j][e] = pair.ds;
          if (args.d_bias != nullptr)
            d_bias.put(warp_row + fragment_row() + e / 2 * (kMmaRows / 2), column, pair);
        }
      }
      if (args.d_bias != nullptr) d_bias.add_rows();
    }
    Tile::add_weighted(d_scores, keys, sums);
    __syncthreads();  // this tile has been read
    if (kTiles == 1 && next < runs.count) load(next, 0);
    if (kTiles == 1) commit_copies();
    key = next;
    if (kTiles == 2) tile ^= 1;
  }
  wait_for_copies<0>();
  if (args.d_bias != nullptr) {
    __syncthreads();
    d_bias.store(args.d_bias +
                 ((sequence * gridDim.x + tile_number) * layer.heads + head) * layer.buckets.count);
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t row = first + warp_row + fragment_row() + r * (kMmaRows / 2);
    if (row >= count) continue;
    Gradient* const to = static_cast<Gradient*>(args.d_query) +
                         (sequence * count + row) * args.d_query_width + head * layer.head_dim;
#pragma unroll
    for (int j = 0; j < kHead / kMmaColumns; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = j * kMmaColumns + fragment_column() + e;
        if (column < layer.head_dim)
          store_gradient(to + column, args.add, sums[j][2 * r + e] * layer.scale);
      }
    }
  }
}

// A tile of a head's queries.
struct QueryTile {
  int64_t head, first;  // head: one behind the last when there are no more
};
// The first from `tile` on that sees one of the keys.
template <int kQueries>
__device__ inline QueryTile next_queries(const AttentionLayer& layer, const int32_t* starts,
                                         const PositionBounds& keys, int64_t end, QueryTile tile) {
  const Runs& queries = layer.queries;
  for (; tile.head < end; ++tile.head, tile.first = 0) {
    while (tile.first < queries.count) {
      // Starts are read from memory, and of half of all tiles positions tell enough.
      if (bounds_of(queries, tile.first, kQueries).high >= keys.low) {
        const PositionBounds seen = seen_by(layer, starts, tile.first, kQueries).bounds();
        if (meet(seen, keys)) return tile;
        if (seen.low > keys.high && tile.first + kQueries <= queries.first_count) {
          // Later ones of the run see no earlier key.
          tile.first = queries.first_count / kQueries * kQueries;
          if (queries.first_count < queries.count || queries.first_count % kQueries != 0) continue;
          break;
        }
        if (seen.low > keys.high && tile.first >= queries.first_count) break;
      }
      tile.first += kQueries;
    }
  }
  return tile;
}

// The columns of a head whose sums a block has in registers; beside it in the grid are those of the others.
template <int kHead>
constexpr int kSumColumns = kHead <= 128 ? kHead : 128;

// grid (tiles of keys, times parts of their columns; K; B)
template <class Gradient, int kHead>
__global__ void __launch_bounds__(kBlockThreads)
    key_kernel(const __grid_constant__ AttentionBackward args) {
  using Tile = HeadTile<kHead>;
  constexpr int kQueries = Inner<kHead>::kRows, kTiles = Inner<kHead>::kTiles;
  constexpr int kWide = Inner<kHead>::kWide, kParts = kHead / kSumColumns<kHead>;
  // Of a tile's queries: lse, D, and where their documents begin.
  __shared__ float lse[kTiles][kQueries], dots[kTiles][kQueries];
  __shared__ int32_t begins[kTiles][kQueries];
  Bf16* const keys = static_cast<Bf16*>(dynamic_shared());
  Bf16* const values = keys + kBlockRows * Tile::kStride;
  Bf16* const tiles =
      values + kBlockRows * Tile::kStride;  // queries, then their d_out, kTiles times
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
    __syncthreads();  // keys and this tile are there
    const Bf16* const queries = tiles + tile * 2 * kQueries * Tile::kStride;
    const Bf16* const d_outs = queries + kQueries * Tile::kStride;
    // Of keys and queries: the transposes of those in query_kernel.
    float scores[kWide][4] = {}, d_scores[kWide][4] = {};
    Tile::add_products(keys + warp_row * Tile::kStride, queries, scores);
    Tile::add_products(values + warp_row * Tile::kStride, d_outs, d_scores);
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
    __syncthreads();  // this tile has been read
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

template <class Gradient>
void start(cudaStream_t stream, const AttentionBackward& args) {
  const AttentionLayer& layer = args.layer;
  const auto grid = [&](int64_t rows, int parts, int64_t heads) {
    return dim3(static_cast<unsigned>(ceil_div(rows, kBlockRows) * parts),
                static_cast<unsigned>(heads), static_cast<unsigned>(layer.batch));
  };
  with_head(layer.head_dim, [&](auto columns) {
    constexpr int kHead = decltype(columns)::value;
    using In = Inner<kHead>;
    const size_t bytes = HeadTile<kHead>::bytes(2 * (kBlockRows + In::kTiles * In::kRows));
    launch_with_shared(stream, grid(layer.queries.count, 1, layer.heads), kBlockThreads,
                       bytes + BiasGradient<In::kRows>::bytes(layer.buckets.count),
                       query_kernel<Gradient, kHead>, args);
    launch_with_shared(stream,
                       grid(layer.keys.runs.count, kHead / kSumColumns<kHead>, layer.kv_heads),
                       kBlockThreads, bytes, key_kernel<Gradient, kHead>, args);
  });
}

}  // namespace

void attention_backward_bf16(cudaStream_t stream, const AttentionBackward& args) {
  if (args.add) {
    start<float>(stream, args);
  } else {
    start<Bf16>(stream, args);
  }
}

}  // namespace muster::trainer::cuda
