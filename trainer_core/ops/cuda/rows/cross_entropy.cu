// Softmax cross-entropy of rows of logits, or of slices of rows, with soft cap and z-loss, and its
// gradient. A block has a row, which it reads once for the softmax's sum and once for the
// gradient. The second time the row should come from the L2 cache: few rows are in progress at a
// time, as a block has many threads, each with kAhead 16-byte loads in flight.
#include "trainer_core/ops/cuda/device/device.cuh"
#include "trainer_core/ops/cuda/device/kernels.h"
#include "trainer_core/ops/cuda/device/vectors.cuh"

namespace muster::trainer::cuda {
namespace {

// Threads of a row's block, and the blocks that share the registers of a multiprocessor. On an H200
// 264 rows are then in progress, which at 128 KiB each take 33 of the 50 MiB of L2.
constexpr int kRowThreads = 512, kRowBlocks = 2;
// Packs that a thread loads before it uses any of them.
constexpr int kAhead = 4;
// kLogitSums of shard_ops.h.
constexpr int64_t kSums = 3;

using Logits = Pack<kPack<float>>;

// Calls body(pack, column) for this thread's packs of a row of n elements. If body returns true,
// stores the changed pack in `to`, which may be `row`. Elements before the first multiple of 16
// bytes and after the last one are passed one by one; all of them, if packs of `to` are unaligned.
template <class T, class Body>
__device__ inline void for_row(int64_t n, const float* row, T* to, const Body& body) {
  constexpr int kCount = kPack<float>;
  const auto address = reinterpret_cast<uintptr_t>(row);
  const int64_t before = (kPackBytes - address % kPackBytes) % kPackBytes / sizeof(float);
  const bool aligned = reinterpret_cast<uintptr_t>(to + before) % (kCount * sizeof(T)) == 0;
  const int64_t head = aligned && before < n ? before : n;
  const auto single = [&](int64_t column) {
    Pack<1> x = load<1>(row + column);
    if (body(x, column)) store(x, to + column);
  };
  for (int64_t i = threadIdx.x; i < head; i += blockDim.x) single(i);
  const int64_t packs = (n - head) / kCount;
  for (int64_t i = threadIdx.x; i < packs; i += kAhead * static_cast<int64_t>(blockDim.x)) {
    Logits x[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int64_t pack = i + a * static_cast<int64_t>(blockDim.x);
      if (pack < packs) x[a] = load<kCount>(row + head + pack * kCount);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int64_t pack = i + a * static_cast<int64_t>(blockDim.x);
      const int64_t column = head + pack * kCount;
      Logits changed = x[a];
      if (pack < packs && body(changed, column)) store(changed, to + column);
    }
  }
  for (int64_t i = head + packs * kCount + threadIdx.x; i < n; i += blockDim.x) single(i);
}

// A row's contribution to its softmax: the largest logit, and the sum of exp(logit - peak).
struct RowSum {
  float peak;
  float total;
};

// Caps the logits in place if cap > 0.
__device__ inline RowSum sum_exponentials(int64_t n, float cap, float* logits) {
  const float inverse = cap > 0 ? 1 / cap : 0;
  float peak = kLowest, total = 0;
  for_row(n, logits, logits, [&](auto& x, int64_t) {
    float largest = kLowest;
#pragma unroll
    for (float& logit : x.of) {
      if (cap > 0) logit = cap * tanhf(logit * inverse);
      largest = fmaxf(largest, logit);
    }
    if (largest > peak) {
      total *= expf(peak - largest);
      peak = largest;
    }
#pragma unroll
    for (const float logit : x.of) total += expf(logit - peak);
    return cap > 0;
  });
  const float whole = block_max(peak);
  return {whole, block_sum(total * expf(peak - whole))};
}

// Writes the gradient of a row's logits: factor * exp(logit - shift), minus `weight` at the target;
// all of it times 1 - (logit / cap)² if cap > 0.
template <class T>
__device__ inline void gradient_row(float shift, float factor, float weight, int64_t n, float cap,
                                    int64_t target, const float* logits, T* gradient) {
  const float inverse = cap > 0 ? 1 / cap : 0;
  for_row(n, logits, gradient, [&](auto& x, int64_t column) {
    int64_t at = column;
#pragma unroll
    for (float& logit : x.of) {
      const float t = logit * inverse;
      const float p = expf(logit - shift) * factor - (at++ == target ? weight : 0.0F);
      logit = cap > 0 ? p * (1.0F - t * t) : p;
    }
    return true;
  });
}

__device__ inline float loss_of(double lse, float target_logit, double z_loss, float weight) {
  return static_cast<float>(static_cast<double>(weight) *
                            (lse - static_cast<double>(target_logit) + z_loss * lse * lse));
}

template <class T>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks) cross_entropy_kernel(CrossEntropy args) {
  const int64_t row = blockIdx.x, target = args.targets[row];
  float* const logits = args.logits + row * args.vocab;
  if (target < 0 || target >= args.vocab) {
    *args.fault = static_cast<int32_t>(Fault::kTarget);
    // Uniform over the block.
    return;
  }
  const RowSum sum = sum_exponentials(args.vocab, args.soft_cap, logits);
  // Other threads read the capped logits from here on.
  __syncthreads();
  const float weight = args.weights[row];
  const double lse = log(static_cast<double>(sum.total)) + static_cast<double>(sum.peak);
  if (threadIdx.x == 0) args.losses[row] = loss_of(lse, logits[target], args.z_loss, weight);
  if (args.gradient == nullptr) return;
  // All threads have read the target's logit.
  __syncthreads();
  T* const gradient = static_cast<T*>(args.gradient) + row * args.vocab;
  if (args.soft_cap > 0 || args.z_loss > 0) {
    const double factor = static_cast<double>(weight) * (1 + 2 * args.z_loss * lse);
    gradient_row(static_cast<float>(lse), static_cast<float>(factor), weight, args.vocab,
                 args.soft_cap, target, logits, gradient);
  } else {
    const double factor = static_cast<double>(weight) / static_cast<double>(sum.total);
    gradient_row(sum.peak, static_cast<float>(factor), weight, args.vocab, 0, target, logits,
                 gradient);
  }
}

// Returns the column of a row's target in the slice; -1 if another slice has it.
__device__ inline int64_t column_of(const LogitSlice& args, int64_t row) {
  const int64_t target = args.targets[row], column = target - args.first;
  if (target < 0 || target >= args.limit) *args.fault = static_cast<int32_t>(Fault::kTarget);
  return column >= 0 && column < args.width ? column : -1;
}

__global__ void __launch_bounds__(kRowThreads, kRowBlocks) logit_sums_kernel(LogitSlice args) {
  const int64_t row = blockIdx.x;
  float* const logits = args.logits + row * args.width;
  const RowSum sum = sum_exponentials(args.width, args.soft_cap, logits);
  __syncthreads();
  if (threadIdx.x != 0) return;
  const int64_t target = column_of(args, row);
  float* const to = args.sums + row * kSums;
  to[0] = sum.peak;
  to[1] = sum.total;
  to[2] = target < 0 ? 0.0F : logits[target];
}

struct WholeRow {
  float peak;
  double total;  // sum of exp(logit - peak)
  float target_logit;

  __device__ double lse() const { return log(total) + static_cast<double>(peak); }
};
__device__ inline WholeRow whole_row(const SlicedLoss& args, int64_t row) {
  WholeRow whole{kLowest, 0, 0};
  for (int64_t slice = 0; slice < args.slices; ++slice) {
    const float* sums = args.sums + (slice * args.rows + row) * kSums;
    whole.peak = fmaxf(whole.peak, sums[0]);
    whole.target_logit += sums[2];
  }
  for (int64_t slice = 0; slice < args.slices; ++slice) {
    const float* sums = args.sums + (slice * args.rows + row) * kSums;
    whole.total += static_cast<double>(sums[1]) *
                   exp(static_cast<double>(sums[0]) - static_cast<double>(whole.peak));
  }
  return whole;
}

__global__ void sliced_loss_kernel(SlicedLoss args) {
  for (int64_t row = global_index(); row < args.rows; row += global_count()) {
    const WholeRow whole = whole_row(args, row);
    args.losses[row] = loss_of(whole.lse(), whole.target_logit, args.z_loss, args.weights[row]);
  }
}

template <class T>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks)
    sliced_gradient_kernel(SlicedLoss args, LogitSlice slice) {
  const int64_t row = blockIdx.x;
  const WholeRow whole = whole_row(args, row);
  const float weight = args.weights[row];
  const double factor =
      static_cast<double>(weight) * (1 + 2 * args.z_loss * whole.lse()) / whole.total;
  gradient_row(whole.peak, static_cast<float>(factor), weight, slice.width, slice.soft_cap,
               column_of(slice, row), slice.logits + row * slice.width,
               static_cast<T*>(slice.gradient) + row * slice.width);
}

__global__ void soft_cap_kernel(int64_t n, float cap, float inverse, float* x) {
  for (int64_t i = global_index(); i < n; i += global_count()) x[i] = cap * tanhf(x[i] * inverse);
}

}  // namespace

void soft_cap(cudaStream_t stream, int64_t n, float cap, float* x) {
  launch(stream, blocks_for(n), kThreads, soft_cap_kernel, n, cap, 1 / cap, x);
}

void cross_entropy(cudaStream_t stream, const CrossEntropy& args) {
  with_type(args.gradient_type, [&](auto element) {
    launch(stream, one_block_each(args.rows), kRowThreads, cross_entropy_kernel<decltype(element)>,
           args);
  });
}

void logit_sums(cudaStream_t stream, const LogitSlice& args) {
  launch(stream, one_block_each(args.rows), kRowThreads, logit_sums_kernel, args);
}

void sliced_loss(cudaStream_t stream, const SlicedLoss& args) {
  launch(stream, blocks_for(args.rows), kThreads, sliced_loss_kernel, args);
}

void sliced_gradient(cudaStream_t stream, const SlicedLoss& args, const LogitSlice& slice) {
  with_type(slice.gradient_type, [&](auto element) {
    launch(stream, one_block_each(args.rows), kRowThreads,
           sliced_gradient_kernel<decltype(element)>, args, slice);
  });
}

}  // namespace muster::trainer::cuda
