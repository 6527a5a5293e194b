// Rounds to coarse number grids, and finds the magnitudes that determine the scales: see
// quantize_ops.h. Operations and their order are the same as in ops/cpu/quantize.cc.
#include "trainer_core/ops/cuda/device/device.cuh"
#include "trainer_core/ops/cuda/device/kernels.h"
#include "trainer_core/ops/cuda/device/philox.cuh"

namespace muster::trainer::cuda {
namespace {

constexpr float kLargestFloat = 3.402823466e38F;
// Rows per block when searching for the magnitudes of columns.
constexpr int64_t kRowsPerBlock = 64;

__device__ inline uint32_t word_of(float x) { return __float_as_uint(x); }
__device__ inline float number_of(uint32_t word) { return __uint_as_float(word); }
// The words of magnitudes have the order of the values, with NaN above all.
__device__ inline uint32_t magnitude_word(float x) { return word_of(x) & 0x7fffffffU; }
__device__ inline uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

// Merges the block's largest word into amax. The maximum does not depend on the order of threads.
__device__ inline void join(uint32_t word, float* amax) {
  atomicMax(reinterpret_cast<unsigned*>(amax), word);
}

template <class T>
__global__ void abs_max_all(int64_t n, const T* x, float* amax) {
  uint32_t largest = 0;
  for (int64_t i = global_index(); i < n; i += global_count())
    largest = larger(largest, magnitude_word(to_float(x[i])));
  largest = block_reduce(largest, uint32_t{0}, [](uint32_t a, uint32_t b) { return larger(a, b); });
  if (threadIdx.x == 0) join(largest, amax);
}

template <class T>
__global__ void abs_max_rows(int64_t width, const T* x, float* amax) {
  const int64_t row = blockIdx.x;
  uint32_t largest = 0;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
    largest = larger(largest, magnitude_word(to_float(x[row * width + i])));
  largest = block_reduce(largest, uint32_t{0}, [](uint32_t a, uint32_t b) { return larger(a, b); });
  if (threadIdx.x == 0) amax[row] = number_of(larger(word_of(amax[row]), largest));
}

template <class T>
__global__ void abs_max_columns(int64_t rows, int64_t width, const T* x, float* amax) {
  const int64_t column = global_index();
  if (column >= width) return;
  uint32_t largest = 0;
  const int64_t first = blockIdx.y * kRowsPerBlock;
  for (int64_t row = first; row < first + kRowsPerBlock && row < rows; ++row)
    largest = larger(largest, magnitude_word(to_float(x[row * width + column])));
  join(largest, amax + column);
}

__device__ inline float limit_of(NumberGrid grid) {
  return grid == NumberGrid::kE4m3 ? 448.0F : grid == NumberGrid::kE5m2 ? 57'344.0F : 127.5F;
}

// Returns the scale that maps amax to the grid's limit, with the operations of Flax and of AQT.
__device__ inline float scale_for(NumberGrid grid, float amax) {
  const float limit = limit_of(grid);
  if (grid == NumberGrid::kInt8) return amax / limit;
  return 1.0F / fminf(limit / amax, kLargestFloat);
}
__device__ inline bool has_scale(float amax) { return amax > 0 && amax <= kLargestFloat; }

__global__ void current_scale_kernel(NumberGrid grid, int64_t n, const float* amax, float* scale) {
  for (int64_t i = global_index(); i < n; i += global_count()) {
    const float none = grid == NumberGrid::kInt8 ? 1.0F : limit_of(grid);
    scale[i] = scale_for(grid, has_scale(amax[i]) ? amax[i] : none);
  }
}

__global__ void delayed_scale_kernel(int64_t scales, int64_t length, const float* amax,
                                     float* history, float* scale) {
  for (int64_t i = global_index(); i < scales; i += global_count()) {
    const NumberGrid grid = i % 3 == 2 ? NumberGrid::kE5m2 : NumberGrid::kE4m3;
    float* const row = history + i * length;
    const float newest = row[0];
    for (int64_t step = 0; step + 1 < length; ++step) row[step] = row[step + 1];
    row[length - 1] = newest;
    row[0] = amax[i];
    uint32_t largest = 0;
    for (int64_t step = 0; step < length; ++step) largest = larger(largest, word_of(row[step]));
    if (has_scale(number_of(largest))) scale[i] = scale_for(grid, number_of(largest));
  }
}

// Values of one binade lie a quantum of 2^(exponent - mantissa bits) apart; those below the
// smallest normal value have the quantum of its binade. The last bit of a sum with 2^23 quanta is
// worth one quantum: adding it rounds to nearest even, as fp32 does.
template <int kMantissaBits, int kSmallestExponent>
__device__ inline float round_to_float(float x, float limit) {
  constexpr int kFloatBits = 23, kBias = 127;
  const float magnitude = fminf(fabsf(x), limit);
  const uint32_t exponent = word_of(magnitude) & 0x7f800000U;
  const uint32_t smallest = static_cast<uint32_t>(kSmallestExponent + kBias) << kFloatBits;
  const uint32_t shift = static_cast<uint32_t>(kFloatBits - kMantissaBits) << kFloatBits;
  const float large = number_of(larger(exponent, smallest) + shift);
  return copysignf(__fsub_rn(__fadd_rn(magnitude, large), large), x);
}

__device__ inline float round_to(NumberGrid grid, float x) {
  if (grid == NumberGrid::kE4m3) return round_to_float<3, -6>(x, 448.0F);
  if (grid == NumberGrid::kE5m2) return round_to_float<2, -14>(x, 57'344.0F);
  return rintf(fminf(fmaxf(x, -127.0F), 127.0F));
}

// x / scale: Flax divides; AQT multiplies by the reciprocal, and replaces a scale too small to have
// one by 1.
__device__ inline float scaled(NumberGrid grid, float x, float scale) {
  if (grid != NumberGrid::kInt8) return x / scale;
  const float inverse = 1.0F / scale;
  return x * (inverse > kLargestFloat ? 1.0F : inverse);
}

template <class From, class To>
__global__ void quantize_kernel(const __grid_constant__ Quantize args) {
  const From* x = static_cast<const From*>(args.x);
  To* out = static_cast<To*>(args.out);
  for (int64_t i = global_index(); i < args.rows * args.width; i += global_count()) {
    const int64_t row = i / args.width, column = i % args.width;
    const int64_t at = args.of == ScaleOf::kRow ? row : args.of == ScaleOf::kColumn ? column : 0;
    const float value = to_float(x[i]);
    float number = scaled(args.grid, value, args.scale[at]);
    if (args.noisy) {
      const uint32_t word = element_word(args.key, args.location, args.elements.sample(row),
                                         args.elements.element(row, column));
      // Uniform in (-1/2, 1/2), as in uniform_from_bits.
      number = __fadd_rn(
          number, __fsub_rn(__fmul_rn(static_cast<float>(word >> 9) + 0.5F, 0x1p-23F), 0.5F));
    }
    const bool finite = fabsf(value) <= kLargestFloat;
    out[i] = from_float<To>(finite ? round_to(args.grid, number) : number_of(0x7fc00000U));
  }
}

template <class T>
__global__ void dequantize_kernel(Dequantize args) {
  const T* product = static_cast<const T*>(args.product);
  T* out = static_cast<T*>(args.out);
  for (int64_t i = global_index(); i < args.rows * args.width; i += global_count()) {
    const float by_row = args.row_scale[args.by_row ? i / args.width : 0];
    const float by_column = args.column_scale[args.by_column ? i % args.width : 0];
    const float value = __fmul_rn(__fmul_rn(to_float(product[i]), by_row), by_column);
    out[i] = from_float<T>(args.accumulate ? __fadd_rn(to_float(out[i]), value) : value);
  }
}

}  // namespace

void abs_max(cudaStream_t stream, DType dtype, int64_t rows, int64_t width, const void* data,
             ScaleOf of, float* amax) {
  with_type(dtype, [&](auto number) {
    using T = decltype(number);
    const T* x = static_cast<const T*>(data);
    switch (of) {
      case ScaleOf::kTensor:
        return launch(stream, blocks_for(rows * width), kThreads, abs_max_all<T>, rows * width, x,
                      amax);
      case ScaleOf::kRow:
        return launch(stream, one_block_each(rows), kThreads, abs_max_rows<T>, width, x, amax);
      case ScaleOf::kColumn: {
        // The second dimension of a grid is limited to 2^16; matrices with more rows have no scales
        // by column.
        const dim3 blocks(static_cast<unsigned>(ceil_div(width, kThreads)),
                          static_cast<unsigned>(ceil_div(rows, kRowsPerBlock)));
        return launch(stream, blocks, kThreads, abs_max_columns<T>, rows, width, x, amax);
      }
    }
  });
}

void current_scale(cudaStream_t stream, NumberGrid grid, int64_t n, const float* amax,
                   float* scale) {
  launch(stream, blocks_for(n), kThreads, current_scale_kernel, grid, n, amax, scale);
}

void delayed_scale(cudaStream_t stream, int64_t scales, int64_t length, const float* amax,
                   float* history, float* scale) {
  launch(stream, blocks_for(scales), kThreads, delayed_scale_kernel, scales, length, amax, history,
         scale);
}

void quantize(cudaStream_t stream, const Quantize& args) {
  with_type(args.from_type, [&](auto from) {
    with_type(args.to_type, [&](auto to) {
      launch(stream, blocks_for(args.rows * args.width), kThreads,
             quantize_kernel<decltype(from), decltype(to)>, args);
    });
  });
}

void dequantize(cudaStream_t stream, const Dequantize& args) {
  with_type(args.dtype, [&](auto number) {
    launch(stream, blocks_for(args.rows * args.width), kThreads,
           dequantize_kernel<decltype(number)>, args);
  });
}

}  // namespace muster::trainer::cuda
