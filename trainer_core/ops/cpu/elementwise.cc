// Adding, scaling, converting, filling and summing flat ranges.
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/elementwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

template <class X, class Y>
HWY_INLINE void add_to(int64_t n, const X* x, Y* y) {
  for_slices(n, [&](Slice s) { s.store(hn::Add(s.load(y), s.load(x)), y); });
}

void add(int64_t n, const float* x, float* y) { add_to(n, x, y); }

void add_parameters(DType dtype, int64_t n, const float* x, void* y) {
  with_type(dtype, [&](auto number) { add_to(n, x, static_cast<decltype(number)*>(y)); });
}

void add_gradients(DType dtype, int64_t n, const void* x, float* y) {
  with_type(dtype, [&](auto number) { add_to(n, static_cast<const decltype(number)*>(x), y); });
}

void add_activations(DType dtype, int64_t n, const void* x, const void* delta, void* sum) {
  with_type(dtype, [&](auto number) {
    using T = decltype(number);
    const auto* a = static_cast<const T*>(x);
    const auto* b = static_cast<const T*>(delta);
    for_slices(n, [&](Slice s) { s.store(hn::Add(s.load(a), s.load(b)), static_cast<T*>(sum)); });
  });
}

void multiply(DType dtype, int64_t n, float factor, void* data) {
  const FloatVec by = hn::Set(FloatTag(), factor);
  with_type(dtype, [&](auto number) {
    auto* x = static_cast<decltype(number)*>(data);
    for_slices(n, [&](Slice s) { s.store(hn::Mul(s.load(x), by), x); });
  });
}

void convert(int64_t n, DType from_type, const void* from, DType to_type, void* to) {
  with_type(from_type, [&](auto of_from) {
    with_type(to_type, [&](auto of_to) {
      const auto* x = static_cast<const decltype(of_from)*>(from);
      auto* y = static_cast<decltype(of_to)*>(to);
      for_slices(n, [&](Slice s) { s.store(s.load(x), y); });
    });
  });
}

void fill(DType dtype, int64_t n, float value, void* data) {
  with_type(dtype, [&](auto number) {
    using T = decltype(number);
    std::fill_n(static_cast<T*>(data), n, from_float<T>(value));
  });
}

// Sums term(element as fp64) in four fp64 vectors.
template <class Term>
HWY_INLINE double accumulate(int64_t n, const float* x, const Term& term) {
  const hn::ScalableTag<double> d64;
  const hn::Rebind<float, decltype(d64)> d32;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d64));
  auto s0 = hn::Zero(d64), s1 = hn::Zero(d64), s2 = hn::Zero(d64), s3 = hn::Zero(d64);
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::Add(s0, term(hn::PromoteTo(d64, hn::LoadU(d32, x + i))));
    s1 = hn::Add(s1, term(hn::PromoteTo(d64, hn::LoadU(d32, x + i + lanes))));
    s2 = hn::Add(s2, term(hn::PromoteTo(d64, hn::LoadU(d32, x + i + 2 * lanes))));
    s3 = hn::Add(s3, term(hn::PromoteTo(d64, hn::LoadU(d32, x + i + 3 * lanes))));
  }
  for (; i < n; ++i) {
    const auto value = hn::Set(d64, static_cast<double>(x[i]));
    // Only lane 0 counts: the others add zero.
    s0 = hn::Add(s0, hn::IfThenElseZero(hn::FirstN(d64, 1), term(value)));
  }
  return hn::GetLane(hn::SumOfLanes(d64, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

double sum(int64_t n, const float* x) {
  return accumulate(n, x, [](auto v) { return v; });
}

double sum_of_squares(int64_t n, const float* x) {
  return accumulate(n, x, [](auto v) { return hn::Mul(v, v); });
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <array>
#include <cstring>

#include "trainer_core/base/tensor_views.h"
#include "trainer_core/ops/cpu/cpu_ops.h"
#include "trainer_core/ops/cpu/sums.h"
#include "trainer_core/ops/shape_checks.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer::cpu {

HWY_EXPORT(add);
HWY_EXPORT(add_parameters);
HWY_EXPORT(add_gradients);
HWY_EXPORT(add_activations);
HWY_EXPORT(convert);
HWY_EXPORT(fill);
HWY_EXPORT(multiply);
HWY_EXPORT(sum);
HWY_EXPORT(sum_of_squares);

void add_range(int64_t n, const float* x, float* y) { HWY_DYNAMIC_DISPATCH(add)(n, x, y); }
void add_parameters_range(DType dtype, int64_t n, const float* x, void* y) {
  HWY_DYNAMIC_DISPATCH(add_parameters)(dtype, n, x, y);
}
void add_gradients_range(DType dtype, int64_t n, const void* x, float* y) {
  HWY_DYNAMIC_DISPATCH(add_gradients)(dtype, n, x, y);
}
double sum_range(int64_t n, const float* x) { return HWY_DYNAMIC_DISPATCH(sum)(n, x); }
double sum_of_squares_range(int64_t n, const float* x) {
  return HWY_DYNAMIC_DISPATCH(sum_of_squares)(n, x);
}

void CpuOps::do_fill(const Tensor& x, float value) {
  elementwise(x, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(fill)(x.dtype, end - begin, value, at(x, begin));
  });
}

namespace {

// Values of bf16 are drawn in fp32, chunk by chunk, and rounded.
void fill_row(const NormalStream& values, int64_t first, const Tensor& x) {
  if (x.dtype == DType::kF32)
    return trainer::fill_normal(values, first, {x.f32(), static_cast<size_t>(x.elements())});
  std::array<float, 256> chunk{};
  constexpr auto kChunk = static_cast<int64_t>(chunk.size());
  for (int64_t begin = 0; begin < x.elements(); begin += kChunk) {
    const int64_t count = std::min(kChunk, x.elements() - begin);
    trainer::fill_normal(values, first + begin, {chunk.data(), static_cast<size_t>(count)});
    HWY_DYNAMIC_DISPATCH(convert)(count, DType::kF32, chunk.data(), x.dtype, at(x, begin));
  }
}

}  // namespace

void CpuOps::do_fill_normal(const NormalStream& values, int64_t first, int64_t pitch,
                            const Tensor& x) {
  const int64_t width = x.dim(1);
  elementwise(x, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t row = begin / width, column = begin % width;
      const int64_t count = std::min(end - begin, width - column);
      fill_row(values, first + row * pitch + column, tensor_at(x, begin, {count}));
      begin += count;
    }
  });
}

void CpuOps::do_copy(const Tensor& from, const Tensor& to) {
  if (from.dtype != to.dtype) {
    return elementwise(from, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(convert)
      (end - begin, from.dtype, at(from, begin), to.dtype, at(to, begin));
    });
  }
  const size_t bytes = dtype_bytes(from.dtype);
  elementwise(from, [&](int64_t begin, int64_t end) {
    std::memcpy(at(to, begin), at(from, begin), static_cast<size_t>(end - begin) * bytes);
  });
}

void CpuOps::do_add(const Tensor& x, const Tensor& delta, const Tensor& sum) {
  elementwise(x, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(add_activations)
    (x.dtype, end - begin, at(x, begin), at(delta, begin), at(sum, begin));
  });
}

void CpuOps::do_scale(double factor, const Tensor& x) {
  elementwise(x, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(multiply)(x.dtype, end - begin, static_cast<float>(factor), at(x, begin));
  });
}

double CpuOps::do_sum(const Tensor& x) { return reduce(threads_, x, sum_range); }

double CpuOps::do_sum_of_squares(const Tensor& x) {
  return reduce(threads_, x, sum_of_squares_range);
}

void CpuOps::do_add_bias(const Tensor& bias, const Tensor& x) {
  const int64_t width = bias.elements();
  split(x.elements() / width, x.elements(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      add_parameters_range(x.dtype, width, bias.f32(), at(x, row * width));
  });
}

void CpuOps::do_bias_backward(const Tensor& dx, const Tensor& dbias, Accumulate accumulate,
                              Workspace workspace) {
  const int64_t width = dbias.elements(), rows = dx.elements() / width;
  const int64_t blocks = std::min(kRowSumBlocks, rows);
  split(blocks, dx.elements(), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      float* partial = workspace.data + block * width;
      std::fill_n(partial, width, 0.0F);
      for (int64_t row = rows * block / blocks; row < rows * (block + 1) / blocks; ++row)
        add_gradients_range(dx.dtype, width, at(dx, row * width), partial);
    }
  });
  add_blocks(workspace.data, blocks, width, width, accumulate, dbias.f32());
}

void CpuOps::do_copy_columns(const Tensor& from, int64_t from_column, const Tensor& to,
                             int64_t to_column, int64_t columns) {
  const int64_t from_width = from.dim(from.rank - 1), to_width = to.dim(to.rank - 1);
  split(rows_of(from), rows_of(from) * columns, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      HWY_DYNAMIC_DISPATCH(convert)
      (columns, from.dtype, at(from, row * from_width + from_column), to.dtype,
       at(to, row * to_width + to_column));
    }
  });
}

}  // namespace muster::trainer::cpu
#endif
