// Sums that do not depend on the number of threads: fixed blocks of elements or rows, each summed
// in a fixed order, and then the blocks in order. No atomic additions.
#include "trainer_core/ops/cuda/device/device.cuh"
#include "trainer_core/ops/cuda/device/kernels.h"

namespace muster::trainer::cuda {
namespace {

struct Identity {
  __device__ static double of(double x) { return x; }
};
struct Square {
  __device__ static double of(double x) { return x * x; }
};

// Block b adds elements [n b / blocks, n (b + 1) / blocks).
template <class T, class Term>
__global__ void reduce_kernel(int64_t n, const T* x, double* partial) {
  const int64_t block = blockIdx.x, blocks = gridDim.x;
  const int64_t end = n * (block + 1) / blocks;
  double total = 0;
  for (int64_t i = n * block / blocks + threadIdx.x; i < end; i += blockDim.x)
    total += Term::of(static_cast<double>(to_float(x[i])));
  total = block_sum(total);
  if (threadIdx.x == 0) partial[block] = total;
}

// Groups in a block of the kernel below: each warp has a group of rows, each lane a column.
constexpr int kGroups = 8;

// Group g adds rows g, g + kGroups, …; the first group adds the groups' sums in their order.
__global__ void add_blocks_kernel(const float* from, int64_t blocks, int64_t stride, int64_t width,
                                  bool accumulate, float* to) {
  __shared__ float parts[kGroups][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int group = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  float total = 0;
  if (column < width) {
#pragma unroll 8
    for (int64_t block = group; block < blocks; block += kGroups)
      total += from[block * stride + column];
  }
  parts[group][lane] = total;
  __syncthreads();
  if (group > 0 || column >= width) return;
  for (int i = 1; i < kGroups; ++i) total += parts[i][lane];
  to[column] = accumulate ? to[column] + total : total;
}

// grid (columns / threads, blocks of rows): each thread has a column.
template <class T>
__global__ void sum_rows_kernel(int64_t rows, int64_t width, const T* dx, float* partial) {
  const int64_t column = global_index(), block = blockIdx.y, blocks = gridDim.y;
  if (column >= width) return;
  float total = 0;
  for (int64_t row = rows * block / blocks; row < rows * (block + 1) / blocks; ++row)
    total += to_float(dx[row * width + column]);
  partial[block * width + column] = total;
}

__global__ void row_squares_kernel(int64_t width, const float* x, double* sums) {
  const int64_t row = blockIdx.x;
  double total = 0;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
    total += Square::of(static_cast<double>(x[row * width + i]));
  total = block_sum(total);
  if (threadIdx.x == 0) sums[row] = total;
}

__global__ void column_squares_kernel(int64_t rows, int64_t width, const float* x, double* sums) {
  const int64_t column = global_index(), block = blockIdx.y, blocks = gridDim.y;
  if (column >= width) return;
  double total = 0;
  for (int64_t row = rows * block / blocks; row < rows * (block + 1) / blocks; ++row)
    total += Square::of(static_cast<double>(x[row * width + column]));
  sums[block * width + column] = total;
}

template <class Term>
void reduce(cudaStream_t stream, DType dtype, int64_t n, const void* x, double* partial) {
  with_type(dtype, [&](auto number) {
    using T = decltype(number);
    launch(stream, dim3(static_cast<unsigned>(reduction_blocks(n))), kThreads,
           reduce_kernel<T, Term>, n, static_cast<const T*>(x), partial);
  });
}

dim3 columns_by_blocks(int64_t width, int64_t blocks) {
  return dim3(static_cast<unsigned>(ceil_div(width, kThreads)), static_cast<unsigned>(blocks));
}

}  // namespace

void sum(cudaStream_t stream, DType dtype, int64_t n, const void* x, double* partial) {
  reduce<Identity>(stream, dtype, n, x, partial);
}
void sum_of_squares(cudaStream_t stream, DType dtype, int64_t n, const void* x, double* partial) {
  reduce<Square>(stream, dtype, n, x, partial);
}

void add_blocks(cudaStream_t stream, const float* from, int64_t blocks, int64_t stride,
                int64_t width, Accumulate accumulate, float* to) {
  launch(stream, one_block_each(ceil_div(width, kWarp)), kGroups * kWarp, add_blocks_kernel, from,
         blocks, stride, width, accumulate == Accumulate::kYes, to);
}

void sum_rows(cudaStream_t stream, DType dtype, int64_t rows, int64_t width, const void* dx,
              int64_t blocks, float* partial) {
  with_type(dtype, [&](auto number) {
    using T = decltype(number);
    launch(stream, columns_by_blocks(width, blocks), kThreads, sum_rows_kernel<T>, rows, width,
           static_cast<const T*>(dx), partial);
  });
}

void squares(cudaStream_t stream, int64_t rows, int64_t width, const float* x, int64_t blocks,
             double* row_sums, double* column_sums) {
  launch(stream, one_block_each(rows), kThreads, row_squares_kernel, width, x, row_sums);
  launch(stream, columns_by_blocks(width, blocks), kThreads, column_squares_kernel, rows, width, x,
         column_sums);
}

}  // namespace muster::trainer::cuda
