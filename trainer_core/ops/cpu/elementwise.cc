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
void add_activations_range(DType dtype, int64_t n, const void* x, const void* delta, void* sum) {
  HWY_DYNAMIC_DISPATCH(add_activations)(dtype, n, x, delta, sum);
}
void convert_range(int64_t n, DType from_type, const void* from, DType to_type, void* to) {
  HWY_DYNAMIC_DISPATCH(convert)(n, from_type, from, to_type, to);
}
void scale_range(DType dtype, int64_t n, float factor, void* x) {
  HWY_DYNAMIC_DISPATCH(multiply)(dtype, n, factor, x);
}
void fill_range(DType dtype, int64_t n, float value, void* x) {
  HWY_DYNAMIC_DISPATCH(fill)(dtype, n, value, x);
}
double sum_range(int64_t n, const float* x) { return HWY_DYNAMIC_DISPATCH(sum)(n, x); }
double sum_of_squares_range(int64_t n, const float* x) {
  return HWY_DYNAMIC_DISPATCH(sum_of_squares)(n, x);
}

}  // namespace muster::trainer::cpu
#endif
