// Filling, converting, adding and scaling flat ranges. Bound by memory: neighbouring threads have neighbouring elements.
#include "trainer_core/ops/cuda/device.cuh"
#include "trainer_core/ops/cuda/kernels.h"

namespace muster::trainer::cuda {
namespace {

template <class T>
__global__ void fill_kernel(int64_t n, float value, T* x) {
  for (int64_t i = global_index(); i < n; i += global_count()) x[i] = from_float<T>(value);
}

template <class From, class To>
__global__ void convert_kernel(int64_t n, const From* from, To* to) {
  for (int64_t i = global_index(); i < n; i += global_count())
    to[i] = from_float<To>(to_float(from[i]));
}

// sum may be x or delta.
template <class T>
__global__ void add_kernel(int64_t n, const T* x, const T* delta, T* sum) {
  for (int64_t i = global_index(); i < n; i += global_count())
    sum[i] = from_float<T>(to_float(x[i]) + to_float(delta[i]));
}

template <class T>
__global__ void scale_kernel(int64_t n, float factor, T* x) {
  for (int64_t i = global_index(); i < n; i += global_count())
    x[i] = from_float<T>(to_float(x[i]) * factor);
}

__global__ void soft_cap_kernel(int64_t n, float cap, float inverse, float* x) {
  for (int64_t i = global_index(); i < n; i += global_count()) x[i] = cap * tanhf(x[i] * inverse);
}

template <class T>
__global__ void add_bias_kernel(int64_t n, int64_t width, const float* bias, T* x) {
  for (int64_t i = global_index(); i < n; i += global_count())
    x[i] = from_float<T>(to_float(x[i]) + bias[i % width]);
}

template <class From, class To>
__global__ void copy_columns_kernel(int64_t n, int64_t columns, const From* from,
                                    int64_t from_width, To* to, int64_t to_width) {
  for (int64_t i = global_index(); i < n; i += global_count()) {
    const int64_t row = i / columns, column = i % columns;
    to[row * to_width + column] = from_float<To>(to_float(from[row * from_width + column]));
  }
}

}  // namespace

cudaError_t find_code() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, soft_cap_kernel);
}

void fill(cudaStream_t stream, DType dtype, int64_t n, float value, void* x) {
  with_type(dtype, [&](auto number) {
    using T = decltype(number);
    launch(stream, blocks_for(n), kThreads, fill_kernel<T>, n, value, static_cast<T*>(x));
  });
}

void convert(cudaStream_t stream, int64_t n, DType from_type, const void* from, DType to_type,
             void* to) {
  with_type(from_type, [&](auto of_from) {
    with_type(to_type, [&](auto of_to) {
      using From = decltype(of_from);
      using To = decltype(of_to);
      launch(stream, blocks_for(n), kThreads, convert_kernel<From, To>, n,
             static_cast<const From*>(from), static_cast<To*>(to));
    });
  });
}

void add(cudaStream_t stream, DType dtype, int64_t n, const void* x, const void* delta, void* sum) {
  with_type(dtype, [&](auto number) {
    using T = decltype(number);
    launch(stream, blocks_for(n), kThreads, add_kernel<T>, n, static_cast<const T*>(x),
           static_cast<const T*>(delta), static_cast<T*>(sum));
  });
}

void scale(cudaStream_t stream, DType dtype, int64_t n, float factor, void* x) {
  with_type(dtype, [&](auto number) {
    using T = decltype(number);
    launch(stream, blocks_for(n), kThreads, scale_kernel<T>, n, factor, static_cast<T*>(x));
  });
}

void soft_cap(cudaStream_t stream, int64_t n, float cap, float* x) {
  launch(stream, blocks_for(n), kThreads, soft_cap_kernel, n, cap, 1 / cap, x);
}

void add_bias(cudaStream_t stream, DType dtype, int64_t rows, int64_t width, const float* bias,
              void* x) {
  with_type(dtype, [&](auto number) {
    using T = decltype(number);
    launch(stream, blocks_for(rows * width), kThreads, add_bias_kernel<T>, rows * width, width,
           bias, static_cast<T*>(x));
  });
}

void copy_columns(cudaStream_t stream, const Columns& args) {
  const int64_t n = args.rows * args.columns;
  with_type(args.from_type, [&](auto of_from) {
    with_type(args.to_type, [&](auto of_to) {
      using From = decltype(of_from);
      using To = decltype(of_to);
      launch(stream, blocks_for(n), kThreads, copy_columns_kernel<From, To>, n, args.columns,
             static_cast<const From*>(args.from), args.from_width, static_cast<To*>(args.to),
             args.to_width);
    });
  });
}

}  // namespace muster::trainer::cuda
