// Fills, converts, adds and scales flat ranges. Bound by memory: conversions, sums and copies of
// columns move 16 bytes per access where the addresses allow it.
#include "trainer_core/ops/cuda/device/device.cuh"
#include "trainer_core/ops/cuda/device/kernels.h"
#include "trainer_core/ops/cuda/device/vectors.cuh"

namespace muster::trainer::cuda {
namespace {

template <class T>
__global__ void fill_kernel(int64_t n, float value, T* x) {
  for (int64_t i = global_index(); i < n; i += global_count()) x[i] = from_float<T>(value);
}

// Elements of a flat range that a thread of the two kernels below handles at a time.
constexpr int kRun = 8;

// The last thread of all handles the elements behind the last whole pack.
template <int kCount, class Body>
__device__ inline void for_runs(int64_t n, const Body& body) {
  const int64_t runs = n / kCount;
  for (int64_t i = global_index(); i < runs; i += global_count())
    body(PackOf<kCount>(), i * kCount);
  if (kCount > 1 && global_index() == global_count() - 1)
    for (int64_t i = runs * kCount; i < n; ++i) body(PackOf<1>(), i);
}

template <int kCount, class From, class To>
__global__ void convert_kernel(int64_t n, const From* from, To* to) {
  for_runs<kCount>(
      n, [&](auto pack, int64_t i) { store(load<decltype(pack)::kElements>(from + i), to + i); });
}

// sum may be x or delta.
template <int kCount, class T>
__global__ void add_kernel(int64_t n, const T* x, const T* delta, T* sum) {
  for_runs<kCount>(n, [&](auto pack, int64_t i) {
    constexpr int kElements = decltype(pack)::kElements;
    Pack<kElements> total = load<kElements>(x + i);
    const Pack<kElements> more = load<kElements>(delta + i);
#pragma unroll
    for (int e = 0; e < kElements; ++e) total.of[e] += more.of[e];
    store(total, sum + i);
  });
}

template <class T>
__global__ void scale_kernel(int64_t n, float factor, T* x) {
  for (int64_t i = global_index(); i < n; i += global_count())
    x[i] = from_float<T>(to_float(x[i]) * factor);
}

template <class T>
__global__ void add_bias_kernel(int64_t n, int64_t width, const float* bias, T* x) {
  for (int64_t i = global_index(); i < n; i += global_count())
    x[i] = from_float<T>(to_float(x[i]) + bias[i % width]);
}

template <int kCount, class From, class To>
__global__ void copy_columns_kernel(int64_t rows, int64_t columns, const From* from,
                                    int64_t from_width, To* to, int64_t to_width) {
  const int64_t packs = columns / kCount;
  for (int64_t i = global_index(); i < rows * packs; i += global_count()) {
    const auto [row, pack] = split(i, packs);
    store(load<kCount>(from + row * from_width + pack * kCount),
          to + row * to_width + pack * kCount);
  }
}

// Calls body(PackOf<kRun>()) where all addresses are multiples of 16 bytes and all widths of the
// run, else body(PackOf<1>()).
template <class Body>
void with_runs(std::initializer_list<int64_t> widths, std::initializer_list<const void*> addresses,
               const Body& body) {
  if (in_packs(kRun, widths, addresses)) {
    body(PackOf<kRun>());
  } else {
    body(PackOf<1>());
  }
}

}  // namespace

cudaError_t find_code() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, fill_kernel<float>);
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
      with_runs({}, {from, to}, [&](auto run) {
        using From = decltype(of_from);
        using To = decltype(of_to);
        constexpr int kElements = decltype(run)::kElements;
        launch(stream, blocks_for(ceil_div(n, kElements)), kThreads,
               convert_kernel<kElements, From, To>, n, static_cast<const From*>(from),
               static_cast<To*>(to));
      });
    });
  });
}

void add(cudaStream_t stream, DType dtype, int64_t n, const void* x, const void* delta, void* sum) {
  with_type(dtype, [&](auto number) {
    with_runs({}, {x, delta, sum}, [&](auto run) {
      using T = decltype(number);
      constexpr int kElements = decltype(run)::kElements;
      launch(stream, blocks_for(ceil_div(n, kElements)), kThreads, add_kernel<kElements, T>, n,
             static_cast<const T*>(x), static_cast<const T*>(delta), static_cast<T*>(sum));
    });
  });
}

void scale(cudaStream_t stream, DType dtype, int64_t n, float factor, void* x) {
  with_type(dtype, [&](auto number) {
    using T = decltype(number);
    launch(stream, blocks_for(n), kThreads, scale_kernel<T>, n, factor, static_cast<T*>(x));
  });
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
  with_type(args.from_type, [&](auto of_from) {
    with_type(args.to_type, [&](auto of_to) {
      with_runs({args.columns, args.from_width, args.to_width}, {args.from, args.to},
                [&](auto run) {
                  using From = decltype(of_from);
                  using To = decltype(of_to);
                  constexpr int kElements = decltype(run)::kElements;
                  launch(stream, blocks_for(args.rows * (args.columns / kElements)), kThreads,
                         copy_columns_kernel<kElements, From, To>, args.rows, args.columns,
                         static_cast<const From*>(args.from), args.from_width,
                         static_cast<To*>(args.to), args.to_width);
                });
    });
  });
}

}  // namespace muster::trainer::cuda
