// Attention of a few new rows over the cached keys and values of all earlier positions of their
// sequences. A thread block has one query of one head: its warps compute the scores of a chunk of
// keys, and an online softmax runs over the chunks.
#include "trainer_core/ops/cuda/attention/attention.h"
#include "trainer_core/ops/cuda/device/device.cuh"

namespace muster::trainer::cuda {
namespace {

// Keys per chunk.
constexpr int kChunk = kThreads;
static_assert(kThreads >= kHeadDimMax);  // each thread has one column of the output

// Returns the cache's element at which a position of the row's sequence begins.
__device__ inline int64_t place_of(const AttentionPaged& args, int64_t row, int64_t position,
                                   int64_t kv_head) {
  const int64_t block =
      args.blocks[args.sequences[row] * args.blocks_per_sequence + position / args.block_positions];
  const int64_t inside = position % args.block_positions;
  return ((block * args.kv_heads + kv_head) * args.block_positions + inside) * args.head_dim;
}

// Copies the keys and values of qkv into the caches: each thread copies one key element and the
// value element at the same place.
template <class T>
__global__ void append_kernel(const __grid_constant__ AttentionPaged args) {
  const int64_t h = args.head_dim, width = args.kv_heads * h;
  const int64_t n = args.rows * width;
  for (int64_t i = global_index(); i < n; i += global_count()) {
    const int64_t row = i / width, head = i % width / h, column = i % h;
    const T* key =
        static_cast<const T*>(args.qkv) + row * args.qkv_width + args.heads * h + head * h + column;
    const int64_t slot = place_of(args, row, args.positions[row], head) + column;
    static_cast<T*>(args.keys)[slot] = *key;
    static_cast<T*>(args.values)[slot] = key[width];
  }
}

// Rounds `h` elements to int8 and returns their scale: the largest magnitude becomes 127. The scale
// is NaN if an element is not finite. Rows so small that the factor would overflow become 0.
template <class T>
__device__ inline float round_to_int8(const T* from, int h, int8_t* to) {
  constexpr float kLargest = 127, kSmallest = 1e-36F, kFiniteMax = 3.40282347e38F;
  float largest = 0;
  bool is_finite = true;
  for (int i = 0; i < h; ++i) {
    const float magnitude = fabsf(to_float(from[i]));
    is_finite = is_finite && magnitude <= kFiniteMax;
    largest = fmaxf(largest, magnitude);
  }
  if (!is_finite || largest < kSmallest) {
    for (int i = 0; i < h; ++i) to[i] = 0;
    return is_finite ? 0.0F : nanf("");
  }
  const float factor = kLargest / largest;
  for (int i = 0; i < h; ++i) to[i] = static_cast<int8_t>(rintf(to_float(from[i]) * factor));
  return largest / kLargest;
}

// A thread rounds the key and the value of one row and head.
template <class T>
__global__ void append_int8_kernel(const __grid_constant__ AttentionPaged args) {
  const int h = static_cast<int>(args.head_dim);
  for (int64_t i = global_index(); i < args.rows * args.kv_heads; i += global_count()) {
    const int64_t row = i / args.kv_heads, head = i % args.kv_heads;
    const T* key = static_cast<const T*>(args.qkv) + row * args.qkv_width + (args.heads + head) * h;
    const int64_t slot = place_of(args, row, args.positions[row], head);
    args.key_scales[slot / h] = round_to_int8(key, h, static_cast<int8_t*>(args.keys) + slot);
    args.value_scales[slot / h] =
        round_to_int8(key + args.kv_heads * h, h, static_cast<int8_t*>(args.values) + slot);
  }
}

__device__ inline float cached_value(int8_t x) { return static_cast<float>(x); }
template <class T>
__device__ inline float cached_value(T x) {
  return to_float(x);
}

// grid (R, H). T: the type of activations; C: that of the cache.
template <class T, class C>
__global__ void paged_kernel(const __grid_constant__ AttentionPaged args) {
  __shared__ float query[kHeadDimMax];
  __shared__ float weights[kChunk];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int h = static_cast<int>(args.head_dim);
  const int64_t row = blockIdx.x, head = blockIdx.y;
  const int64_t kv_head = head / (args.heads / args.kv_heads);
  const int64_t last = args.positions[row];
  const int64_t window = args.window == 0 ? 0 : last - args.window + 1;
  const int64_t first = window > 0 ? window : 0;
  const C* const keys = static_cast<const C*>(args.keys);
  const C* const values = static_cast<const C*>(args.values);
  const bool is_int8 = args.key_scales != nullptr;
  if (thread < h)
    query[thread] =
        to_float(static_cast<const T*>(args.qkv)[row * args.qkv_width + head * h + thread]);
  __syncthreads();

  float peak = args.extra_zero ? 0.0F : kLowest, total = args.extra_zero ? 1.0F : 0.0F;
  float sum = 0;  // sum of the thread's column
  for (int64_t chunk = first; chunk <= last; chunk += kChunk) {
    for (int k = warp; k < kChunk && chunk + k <= last; k += kThreads / kWarp) {
      const int64_t key = chunk + k, place = place_of(args, row, key, kv_head);
      float dot = 0;
      for (int column = lane; column < h; column += kWarp)
        dot += query[column] * cached_value(keys[place + column]);
      if (is_int8) dot *= args.key_scales[place / h];
      float score = warp_sum(dot) * args.scale;
      if (args.bias != nullptr)
        score += args.bias[head * args.buckets.count + args.buckets.bucket(last - key)];
      if (args.cap > 0) score = args.cap * tanhf(score / args.cap);
      if (lane == 0) weights[k] = score;
    }
    __syncthreads();
    const bool exists = chunk + thread <= last;
    const float score = exists ? weights[thread] : kLowest;
    const float new_peak = fmaxf(peak, block_max(score));
    const float weight = exists ? expf(score - new_peak) : 0.0F;
    const float factor = expf(peak - new_peak);
    peak = new_peak;
    total = total * factor + block_sum(weight);
    weights[thread] = weight;  // only this thread has read it
    __syncthreads();
    if (thread < h) {
      sum *= factor;
      for (int k = 0; k < kChunk && chunk + k <= last; ++k) {
        const int64_t place = place_of(args, row, chunk + k, kv_head);
        const float scaled = is_int8 ? weights[k] * args.value_scales[place / h] : weights[k];
        sum += scaled * cached_value(values[place + thread]);
      }
    }
    __syncthreads();  // all threads have read the weights
  }
  if (thread < h)
    static_cast<T*>(args.out)[(row * args.heads + head) * h + thread] = from_float<T>(sum / total);
}

}  // namespace

void attention_paged(cudaStream_t stream, const AttentionPaged& args) {
  const int64_t appended = args.rows * args.kv_heads * args.head_dim;
  const dim3 blocks(static_cast<unsigned>(args.rows), static_cast<unsigned>(args.heads));
  with_type(args.dtype, [&](auto number) {
    using T = decltype(number);
    if (args.key_scales != nullptr) {
      launch(stream, blocks_for(args.rows * args.kv_heads), kThreads, append_int8_kernel<T>, args);
      launch(stream, blocks, kThreads, paged_kernel<T, int8_t>, args);
      return;
    }
    launch(stream, blocks_for(appended), kThreads, append_kernel<T>, args);
    launch(stream, blocks, kThreads, paged_kernel<T, T>, args);
  });
}

}  // namespace muster::trainer::cuda
