// The gradients of queries and of relative biases: a block has a tile of one head's queries and
// iterates over the keys that they attend to.
#include "trainer_core/ops/cuda/attention/attention_backward_bf16.cuh"

namespace muster::trainer::cuda {
namespace {

// The gradient of the bias of a tile of queries: stores the gradients of a tile of scores with
// their buckets, and sums them by bucket. In each warp several threads add, each some of the warp's
// rows into sums of its own; at the end these sums are added up per bucket in a fixed order, so the
// result does not depend on timing.
template <int kKeys>
class BiasGradient {
 public:
  static constexpr size_t bytes(int32_t buckets, int adders) {
    if (buckets == 0) return 0;
    return kBlockRows * kStride * (sizeof(float) + sizeof(int32_t)) +
           sizeof(float) * kBlockWarps * adders * row_of(buckets);
  }
  __device__ BiasGradient(void* memory, int32_t buckets, int adders)
      : scores_(static_cast<float*>(memory)),
        buckets_of_(reinterpret_cast<int32_t*>(scores_ + kBlockRows * kStride)),
        sums_(reinterpret_cast<float*>(buckets_of_ + kBlockRows * kStride)),
        buckets_(buckets),
        adders_(adders) {}

  __device__ void clear() {
    for (int i = static_cast<int>(threadIdx.x); i < kBlockWarps * adders_ * row_of(buckets_);
         i += kBlockThreads)
      sums_[i] = 0;
  }
  __device__ void put(int row, int column, const Pair& pair) {
    scores_[row * kStride + column] = pair.ds;
    buckets_of_[row * kStride + column] = pair.bucket;
  }
  // Called by all lanes of a warp after each has stored its rows.
  __device__ void add_rows() {
    __syncwarp();
    const int lane = lane_of(), warp = static_cast<int>(threadIdx.x) / kWarp;
    if (lane < adders_) {
      float* const sums = sums_ + (warp * adders_ + lane) * row_of(buckets_);
      for (int i = lane; i < kMmaRows; i += adders_) {
        const int row = warp * kMmaRows + i;
        for (int column = 0; column < kKeys; ++column)
          sums[buckets_of_[row * kStride + column]] += scores_[row * kStride + column];
      }
    }
    __syncwarp();
  }
  __device__ void store(float* to) const {
    for (int bucket = static_cast<int>(threadIdx.x); bucket < buckets_; bucket += kBlockThreads) {
      float sum = 0;
      for (int adder = 0; adder < kBlockWarps * adders_; ++adder)
        sum += sums_[adder * row_of(buckets_) + bucket];
      to[bucket] = sum;
    }
  }

 private:
  // Odd, so that rows begin in different banks.
  static constexpr int kStride = kKeys + 1;
  __host__ __device__ static constexpr int row_of(int32_t buckets) { return buckets | 1; }

  float* const scores_;
  int32_t* const buckets_of_;
  float* const sums_;
  const int32_t buckets_;
  const int adders_;
};

// Shared memory that a block of the kernel requests.
template <int kHead>
constexpr size_t shared_bytes(int32_t buckets, int adders) {
  return Inner<kHead>::kSharedBytes + BiasGradient<Inner<kHead>::kRows>::bytes(buckets, adders);
}
// Returns the number of adding threads per warp: as many as the device's shared memory has room
// for; one fits on every device.
template <int kHead>
int adders_for(int32_t buckets) {
  static_assert(shared_bytes<kHead>(Buckets::kMax, 1) <= kSharedBytesAnywhere);
  int adders = kMmaRows;
  if (buckets == 0) return adders;
  while (adders > 1 && shared_bytes<kHead>(buckets, adders) > shared_bytes_max()) adders /= 2;
  return adders;
}

// grid (tiles of queries, H, B)
template <class Gradient, int kHead>
__global__ void __launch_bounds__(kBlockThreads)
    query_kernel(const __grid_constant__ AttentionBackward args, int adders) {
  using Tile = HeadTile<kHead>;
  constexpr int kKeys = Inner<kHead>::kRows, kTiles = Inner<kHead>::kTiles;
  Bf16* const queries = static_cast<Bf16*>(dynamic_shared());
  Bf16* const d_outs = queries + kBlockRows * Tile::kStride;
  Bf16* const tiles = d_outs + kBlockRows * Tile::kStride;  // keys, then values, kTiles times
  const AttentionLayer& layer = args.layer;
  BiasGradient<kKeys> d_bias(tiles + kTiles * 2 * kKeys * Tile::kStride, layer.buckets.count,
                             adders);
  const Runs& runs = layer.keys.runs;
  const int64_t count = layer.queries.count;
  // Later queries have more keys, so their blocks start first.
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
    // A row past the end is filled with zeros, and adds nothing to the gradient of the biases.
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
    __syncthreads();  // the copies of the queries and of this tile are complete
    const Bf16* const keys = tiles + tile * 2 * kKeys * Tile::kStride;
    float scores[Inner<kHead>::kWide][4] = {}, d_scores[Inner<kHead>::kWide][4] = {};
    Tile::multiply_transposed(queries + warp_row * Tile::kStride, keys, scores);
    Tile::multiply_transposed(d_outs + warp_row * Tile::kStride, keys + kKeys * Tile::kStride,
                              d_scores);
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
    __syncthreads();  // all threads have read this tile
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

}  // namespace

void attention_d_query_bf16(cudaStream_t stream, const AttentionBackward& args) {
  const AttentionLayer& layer = args.layer;
  with_kernel(args.add, layer.head_dim, [&](auto number, auto columns) {
    constexpr int kHead = decltype(columns)::value;
    const int adders = adders_for<kHead>(layer.buckets.count);
    launch_with_shared(stream, query_blocks(layer), kBlockThreads,
                       shared_bytes<kHead>(layer.buckets.count, adders),
                       query_kernel<decltype(number), kHead>, args, adders);
  });
}

}  // namespace muster::trainer::cuda
