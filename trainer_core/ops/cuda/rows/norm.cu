// RMSNorm and LayerNorm, forward (with the residual addition) and backward.
//
// Two families of kernels. The *_packs kernels read a row once, 16 bytes per access, and keep it in
// registers: kPacks packs per thread, a block per row. Rows whose width or
// addresses are no multiples of 16 bytes, or that are wider than a block's registers, take the
// others, which read a row two or three times. The parameters' gradients are sums over rows: first
// of runs of rows, then of blocks of runs, both in a fixed order.
#include "trainer_core/ops/cuda/device/device.cuh"
#include "trainer_core/ops/cuda/device/kernels.h"
#include "trainer_core/ops/cuda/device/vectors.cuh"

namespace muster::trainer::cuda {
namespace {

// Packs of a row that a thread keeps in registers.
constexpr int kPacks = 2;
constexpr int kThreadsMax = 1024;

// Threads for a row of so many packs: whole warps; 0 if no block is large enough.
inline int threads_of_row(int64_t packs) {
  const int64_t threads = ceil_div(ceil_div(packs, kPacks), kWarp) * kWarp;
  return threads <= kThreadsMax ? static_cast<int>(threads) : 0;
}

// A block's thread of one row: its packs of T begin at columns (thread + i threads) * kPack<T>.
template <class T>
struct RowPacks {
  static constexpr int kCount = kPack<T>;
  int64_t width;

  // Calls body(pack, column) for the thread's packs in the row.
  template <class Body>
  __device__ void each(const Body& body) const {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int64_t column = (threadIdx.x + static_cast<int64_t>(i) * blockDim.x) * kCount;
      if (column < width) body(i, column);
    }
  }
};

template <class T, bool kLayer>
__global__ void __launch_bounds__(kThreadsMax) norm_packs_kernel(NormForward args) {
  const int64_t row = blockIdx.x, first = row * args.width;
  constexpr int kCount = RowPacks<T>::kCount;
  const RowPacks<T> packs{args.width};
  const auto width = static_cast<float>(args.width);
  Pack<kCount> x[kPacks];
  packs.each([&](int i, int64_t column) {
    x[i] = load<kCount>(static_cast<const T*>(args.x) + first + column);
  });
  if (args.delta != nullptr) {
    Pack<kCount> delta[kPacks];
    packs.each([&](int i, int64_t column) {
      delta[i] = load<kCount>(static_cast<const T*>(args.delta) + first + column);
    });
    packs.each([&](int i, int64_t column) {
#pragma unroll
      for (int e = 0; e < kCount; ++e) x[i].of[e] += delta[i].of[e];
      // Remat relies on it: the norm of a stored sum has the bits of the norm that was computed
      // during the addition.
      x[i] = rounded_pack<T>(x[i]);
      store(x[i], static_cast<T*>(args.sum) + first + column);
    });
  }
  float mean = 0;
  if (kLayer) {
    float total = 0;
    packs.each([&](int i, int64_t) {
#pragma unroll
      for (int e = 0; e < kCount; ++e) total += x[i].of[e];
    });
    mean = block_sum(total) / width;
  }
  float squares = 0;
  packs.each([&](int i, int64_t) {
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      const float away = x[i].of[e] - mean;
      squares += away * away;
    }
  });
  const float rstd = 1.0F / sqrtf(block_sum(squares) / width + args.eps);
  if (threadIdx.x == 0) {
    args.stats[row] = rstd;
    if (kLayer) args.stats[args.rows + row] = mean;
  }
  packs.each([&](int i, int64_t column) {
    const Pack<kCount> gain = load<kCount>(args.gain + column);
    Pack<kCount> y;
#pragma unroll
    for (int e = 0; e < kCount; ++e)
      y.of[e] = (x[i].of[e] - mean) * rstd * (gain.of[e] + args.gain_offset);
    if (kLayer) {
      const Pack<kCount> bias = load<kCount>(args.bias + column);
#pragma unroll
      for (int e = 0; e < kCount; ++e) y.of[e] += bias.of[e];
    }
    store(y, static_cast<T*>(args.y) + first + column);
  });
}

// Computes the same as the kernels below, with n = (x - mean) rstd, g = dy (gain + offset): dx +=
// rstd (g - mean(g) - n mean(g n)), without mean(g) in RMSNorm.
template <class T, bool kLayer>
__global__ void __launch_bounds__(kThreadsMax) norm_backward_packs_kernel(NormBackward args) {
  const int64_t row = blockIdx.x, first = row * args.width;
  constexpr int kCount = RowPacks<T>::kCount;
  const RowPacks<T> packs{args.width};
  const auto width = static_cast<float>(args.width);
  Pack<kCount> n[kPacks], g[kPacks], dx[kPacks];
  packs.each([&](int i, int64_t column) {
    n[i] = load<kCount>(static_cast<const T*>(args.x) + first + column);
    g[i] = load<kCount>(static_cast<const T*>(args.dy) + first + column);
    dx[i] = load<kCount>(static_cast<const T*>(args.dx) + first + column);
  });
  const float rstd = args.stats[row], center = kLayer ? args.stats[args.rows + row] : 0.0F;
  float total = 0, dot = 0;
  packs.each([&](int i, int64_t column) {
    const Pack<kCount> gain = load<kCount>(args.gain + column);
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      n[i].of[e] = (n[i].of[e] - center) * rstd;
      g[i].of[e] *= gain.of[e] + args.gain_offset;
      total += g[i].of[e];
      dot += g[i].of[e] * n[i].of[e];
    }
  });
  const float mean = kLayer ? block_sum(total) / width : 0.0F;
  const float along_n = block_sum(dot) / width;
  packs.each([&](int i, int64_t column) {
#pragma unroll
    for (int e = 0; e < kCount; ++e)
      dx[i].of[e] += (g[i].of[e] - mean - n[i].of[e] * along_n) * rstd;
    store(dx[i], static_cast<T*>(args.dx) + first + column);
  });
}

// Writes x + delta to sum if there is a delta. Returns the row to normalize, of which a thread
// reads only elements that it has written itself. Remat relies on it: the norm of a stored sum has
// the bits of the norm that was computed during the addition.
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
  float dot = 0;  // dot product of g and x
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
  float total = 0;  // sum of g
  float dot = 0;    // dot product of g and n
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

// Warps of a block of the kernel below, which share the block's rows, and the rows that a thread
// loads before it adds any of them. Together they are the loads in flight that keep the memory
// busy.
constexpr int kRowWarps = 8;
constexpr int kRowsAhead = 2;

// grid (packs of columns / lanes, blocks of rows): sums of dy n and, with kLayer, of dy. A lane
// adds kCount columns of its warp's run of rows in the order of rows; the first warp adds the runs
// in theirs.
template <class T, int kCount, bool kLayer>
__global__ void parameter_gradients_kernel(NormBackward args) {
  __shared__ float parts[kLayer ? 2 : 1][kRowWarps][kWarp * kCount];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kWarp + lane) * kCount;
  const bool exists = column < args.width;
  const T* dy = static_cast<const T*>(args.dy) + column;
  const T* x = static_cast<const T*>(args.x) + column;
  const int64_t run = static_cast<int64_t>(blockIdx.y) * kRowWarps + warp;
  const int64_t runs = args.blocks * kRowWarps;
  const int64_t end = exists ? args.rows * (run + 1) / runs : 0;
  Pack<kCount> gain{}, bias{};
  const auto add = [&](int64_t row, const Pack<kCount>& g, const Pack<kCount>& of_x) {
    const float center = kLayer ? args.stats[args.rows + row] : 0.0F, rstd = args.stats[row];
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      gain.of[e] += g.of[e] * ((of_x.of[e] - center) * rstd);
      bias.of[e] += g.of[e];
    }
  };
  int64_t row = args.rows * run / runs;
  for (; row + kRowsAhead <= end; row += kRowsAhead) {
    Pack<kCount> g[kRowsAhead], of_x[kRowsAhead];
#pragma unroll
    for (int i = 0; i < kRowsAhead; ++i) {
      g[i] = load<kCount>(dy + (row + i) * args.width);
      of_x[i] = load<kCount>(x + (row + i) * args.width);
    }
#pragma unroll
    for (int i = 0; i < kRowsAhead; ++i) add(row + i, g[i], of_x[i]);
  }
  for (; row < end; ++row)
    add(row, load<kCount>(dy + row * args.width), load<kCount>(x + row * args.width));
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    parts[0][warp][e * kWarp + lane] = gain.of[e];
    if (kLayer) parts[kLayer ? 1 : 0][warp][e * kWarp + lane] = bias.of[e];
  }
  __syncthreads();
  if (warp > (kLayer ? 1 : 0) || !exists) return;
  // Warp 0 adds gains, warp 1 biases.
  float* const partial = args.partial + (2 * blockIdx.y + warp) * args.width + column;
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    float total = 0;
#pragma unroll
    for (int i = 0; i < kRowWarps; ++i) total += parts[warp][i][e * kWarp + lane];
    partial[e] = total;
  }
}

template <class T, bool kLayer>
void start_norm(cudaStream_t stream, const NormForward& args) {
  const int threads = threads_of_row(args.width / kPack<T>);
  const bool packs = in_packs(kPack<T>, {args.width},
                              {args.x, args.delta, args.gain, args.bias, args.sum, args.y});
  if (packs && threads > 0) {
    launch(stream, one_block_each(args.rows), threads, norm_packs_kernel<T, kLayer>, args);
  } else {
    launch(stream, one_block_each(args.rows), kThreads, kLayer ? layer_kernel<T> : rms_kernel<T>,
           args);
  }
}

template <class T, bool kLayer>
void start_norm_backward(cudaStream_t stream, const NormBackward& args) {
  const int threads = threads_of_row(args.width / kPack<T>);
  const bool packs =
      in_packs(kPack<T>, {args.width}, {args.dy, args.x, args.gain, args.dx}) && threads > 0;
  if (packs) {
    launch(stream, one_block_each(args.rows), threads, norm_backward_packs_kernel<T, kLayer>, args);
  } else {
    launch(stream, one_block_each(args.rows), kThreads,
           kLayer ? layer_backward_kernel<T> : rms_backward_kernel<T>, args);
  }
  with_pack<T>(packs, [&](auto pack) {
    constexpr int kCount = decltype(pack)::kElements;
    const dim3 blocks(static_cast<unsigned>(ceil_div(args.width, kCount * kWarp)),
                      static_cast<unsigned>(args.blocks));
    launch(stream, blocks, kRowWarps * kWarp, parameter_gradients_kernel<T, kCount, kLayer>, args);
  });
}

}  // namespace

void norm(cudaStream_t stream, const NormForward& args) {
  with_type(args.dtype, [&](auto number) {
    using T = decltype(number);
    if (args.type == NormType::kLayer) {
      start_norm<T, true>(stream, args);
    } else {
      start_norm<T, false>(stream, args);
    }
  });
}

void norm_backward(cudaStream_t stream, const NormBackward& args) {
  with_type(args.dtype, [&](auto number) {
    using T = decltype(number);
    if (args.type == NormType::kLayer) {
      start_norm_backward<T, true>(stream, args);
    } else {
      start_norm_backward<T, false>(stream, args);
    }
  });
}

}  // namespace muster::trainer::cuda
