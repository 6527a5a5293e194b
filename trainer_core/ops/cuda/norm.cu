// RMSNorm and LayerNorm, forward (with the residual addition) and backward. A block has a row; sums over rows are made by blocks of rows
// with a thread for each column.
#include "trainer_core/ops/cuda/device.cuh"
#include "trainer_core/ops/cuda/kernels.h"

namespace muster::trainer::cuda {
namespace {

// x + delta into sum, when there is a delta; returns the row that is to be normed, of which a thread reads what it has written itself. Remat
// relies on one thing here: the norm of a stored sum has the bits of the norm made while summing.
template <class T>
__device__ inline const T* residual_row(int64_t row, const NormForward& args) {
  const T* x = static_cast<const T*>(args.x) + row * args.width;
  if (args.delta == nullptr) return x;
  const T* delta = static_cast<const T*>(args.delta) + row * args.width;
  T* sum = static_cast<T*>(args.sum) + row * args.width;
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x)
    sum[i] = from_float<T>(to_float(x[i]) + to_float(delta[i]));
  return sum;
}

template <class T>
__global__ void rms_kernel(NormForward args) {
  const int64_t row = blockIdx.x;
  const T* x = residual_row<T>(row, args);
  T* y = static_cast<T*>(args.y) + row * args.width;
  float squares = 0;
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
    const float value = to_float(x[i]);
    squares += value * value;
  }
  const float square = block_sum(squares) / static_cast<float>(args.width);
  const float rstd = 1.0F / sqrtf(square + args.eps);
  if (threadIdx.x == 0) args.stats[row] = rstd;
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x)
    y[i] = from_float<T>(to_float(x[i]) * rstd * (args.gain[i] + args.gain_offset));
}

template <class T>
__global__ void layer_kernel(NormForward args) {
  const int64_t row = blockIdx.x;
  const T* x = residual_row<T>(row, args);
  T* y = static_cast<T*>(args.y) + row * args.width;
  const auto width = static_cast<float>(args.width);
  float total = 0;
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) total += to_float(x[i]);
  const float mean = block_sum(total) / width;
  float squares = 0;
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
    const float away = to_float(x[i]) - mean;
    squares += away * away;
  }
  const float rstd = 1.0F / sqrtf(block_sum(squares) / width + args.eps);
  if (threadIdx.x == 0) {
    args.stats[row] = rstd;
    args.stats[args.rows + row] = mean;
  }
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
    const float n = (to_float(x[i]) - mean) * rstd;
    y[i] = from_float<T>(n * (args.gain[i] + args.gain_offset) + args.bias[i]);
  }
}

template <class T>
__global__ void rms_backward_kernel(NormBackward args) {
  const int64_t row = blockIdx.x, first = row * args.width;
  const T* dy = static_cast<const T*>(args.dy) + first;
  const T* x = static_cast<const T*>(args.x) + first;
  T* dx = static_cast<T*>(args.dx) + first;
  const float rstd = args.stats[row];
  float dot = 0;  // of g with x
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x)
    dot += to_float(dy[i]) * (args.gain[i] + args.gain_offset) * to_float(x[i]);
  const float along_x = rstd * rstd * (block_sum(dot) / static_cast<float>(args.width));
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
    const float g = to_float(dy[i]) * (args.gain[i] + args.gain_offset);
    dx[i] = from_float<T>(to_float(dx[i]) + (g - to_float(x[i]) * along_x) * rstd);
  }
}

template <class T>
__global__ void layer_backward_kernel(NormBackward args) {
  const int64_t row = blockIdx.x, first = row * args.width;
  const T* dy = static_cast<const T*>(args.dy) + first;
  const T* x = static_cast<const T*>(args.x) + first;
  T* dx = static_cast<T*>(args.dx) + first;
  const auto width = static_cast<float>(args.width);
  const float rstd = args.stats[row], center = args.stats[args.rows + row];
  float total = 0;  // of g
  float dot = 0;    // of g with n
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
    const float g = to_float(dy[i]) * (args.gain[i] + args.gain_offset);
    total += g;
    dot += g * ((to_float(x[i]) - center) * rstd);
  }
  const float mean = block_sum(total) / width, along_n = block_sum(dot) / width;
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
    const float g = to_float(dy[i]) * (args.gain[i] + args.gain_offset);
    const float n = (to_float(x[i]) - center) * rstd;
    dx[i] = from_float<T>(to_float(dx[i]) + (g - mean - n * along_n) * rstd);
  }
}

// grid (columns / threads, blocks of rows): sums of dy n and, with kLayer, of dy.
template <class T>
__global__ void parameter_gradients_kernel(NormBackward args) {
  const int64_t column = global_index(), block = blockIdx.y;
  if (column >= args.width) return;
  const T* dy = static_cast<const T*>(args.dy);
  const T* x = static_cast<const T*>(args.x);
  const bool layer = args.type == NormType::kLayer;
  const int64_t end = args.rows * (block + 1) / args.blocks;
  float gain = 0, bias = 0;
  for (int64_t row = args.rows * block / args.blocks; row < end; ++row) {
    const float center = layer ? args.stats[args.rows + row] : 0.0F;
    const float g = to_float(dy[row * args.width + column]);
    gain += g * ((to_float(x[row * args.width + column]) - center) * args.stats[row]);
    bias += g;
  }
  float* const partial = args.partial + 2 * block * args.width + column;
  partial[0] = gain;
  if (layer) partial[args.width] = bias;
}

}  // namespace

void norm(cudaStream_t stream, const NormForward& args) {
  with_type(args.dtype, [&](auto number) {
    using T = decltype(number);
    const auto kernel = args.type == NormType::kLayer ? layer_kernel<T> : rms_kernel<T>;
    launch(stream, one_block_each(args.rows), kThreads, kernel, args);
  });
}

void norm_backward(cudaStream_t stream, const NormBackward& args) {
  with_type(args.dtype, [&](auto number) {
    using T = decltype(number);
    const auto kernel =
        args.type == NormType::kLayer ? layer_backward_kernel<T> : rms_backward_kernel<T>;
    launch(stream, one_block_each(args.rows), kThreads, kernel, args);
    const dim3 blocks(static_cast<unsigned>(ceil_div(args.width, kThreads)),
                      static_cast<unsigned>(args.blocks));
    launch(stream, blocks, kThreads, parameter_gradients_kernel<T>, args);
  });
}

}  // namespace muster::trainer::cuda
