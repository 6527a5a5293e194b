// An MLP's activation, gated (SwiGLU, GeGLU: Shazeer, 2020) or not, and its gradient in place.
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/activation.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trainer_core/ops/cpu/exp.inc"
#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

// The arithmetic of activation_formulas.inc.
using Value = FloatVec;
HWY_INLINE Value constant(float x) { return hn::Set(FloatTag(), x); }
HWY_INLINE Value multiply_add(Value a, Value b, Value c) { return hn::MulAdd(a, b, c); }
HWY_INLINE Value max(Value x, Value y) { return hn::Max(x, y); }
HWY_INLINE Value clamp(Value x, Value low, Value high) { return hn::Min(hn::Max(x, low), high); }
HWY_INLINE Value one_if_positive(Value x) {
  return hn::IfThenElseZero(hn::Gt(x, hn::Zero(FloatTag())), constant(1.0F));
}
HWY_INLINE Value sigmoid(Value x) {
  // Below this, exp(-x) would leave fp32; the sigmoid is a denormal there anyway.
  const Value negated = hn::Min(hn::Neg(x), constant(88.0F));
  const Value one = constant(1.0F);
  return hn::Div(one, hn::Add(one, exp_fast(negated)));
}

#define MUSTER_EACH HWY_INLINE
#include "trainer_core/ops/activation_formulas.inc"
#undef MUSTER_EACH

template <class F, class T>
HWY_INLINE void forward_rows(int64_t begin, int64_t end, const ActivationArgs& args) {
  for (int64_t row = begin; row < end; ++row) {
    const T* in = row_of<T>(args.in, row, args.in_width);
    const T* up = in + args.width;
    T* out = row_of<T>(args.out, row, args.width);
    for_slices(args.width, [&](Slice s) {
      const FloatVec f = F::value(s.load(in));
      s.store(args.gated ? hn::Mul(f, s.load(up)) : f, out);
    });
  }
}

template <class F, class T>
HWY_INLINE void backward_rows(int64_t begin, int64_t end, const ActivationArgs& args) {
  for (int64_t row = begin; row < end; ++row) {
    const T* in = row_of<T>(args.in, row, args.in_width);
    const T* up = in + args.width;
    const T* dout = row_of<T>(args.out, row, args.width);
    T* d_in = row_of<T>(args.d_in, row, args.in_width);
    for_slices(args.width, [&](Slice s) {
      const FloatVec grad = s.load(dout);
      const ValueAndSlope f = F::both(s.load(in));
      if (!args.gated) return s.store(hn::Mul(grad, f.slope), d_in);
      s.store(hn::Mul(hn::Mul(grad, s.load(up)), f.slope), d_in);
      s.store(hn::Mul(grad, f.value), d_in + args.width);
    });
  }
}

// Calls body(F, element) for the activation and the element type.
template <class Body>
HWY_INLINE void with_activation(const ActivationArgs& args, const Body& body) {
  with_type(args.dtype,
            [&](auto element) { with_formulas(args.kind, [&](auto f) { body(f, element); }); });
}

void activate(int64_t begin, int64_t end, const ActivationArgs& args) {
  with_activation(args, [&](auto f, auto number) {
    forward_rows<decltype(f), decltype(number)>(begin, end, args);
  });
}

void activate_backward(int64_t begin, int64_t end, const ActivationArgs& args) {
  with_activation(args, [&](auto f, auto number) {
    backward_rows<decltype(f), decltype(number)>(begin, end, args);
  });
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "trainer_core/ops/cpu/cpu_ops.h"
#include "trainer_core/ops/shape_checks.h"

namespace muster::trainer::cpu {

HWY_EXPORT(activate);
HWY_EXPORT(activate_backward);

namespace {

ActivationArgs activation_rows(const MlpActivation& activation, const Tensor& in,
                               const Tensor& out) {
  const int64_t width = out.dim(out.rank - 1);
  return {.dtype = in.dtype,
          .kind = activation.kind,
          .gated = activation.gated,
          .width = width,
          .in_width = activation.input_width(width),
          .in = in.data,
          .out = out.data,
          .d_in = nullptr};
}

}  // namespace

void CpuOps::do_activate(const MlpActivation& activation, const Tensor& in, const Tensor& out) {
  const ActivationArgs args = activation_rows(activation, in, out);
  split(rows_of(out), in.elements(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(activate)(begin, end, args);
  });
}

void CpuOps::do_activate_backward(const MlpActivation& activation, const Tensor& dout,
                                  const Tensor& in, const Tensor& d_in) {
  ActivationArgs args = activation_rows(activation, in, dout);
  args.d_in = d_in.data;
  split(rows_of(dout), in.elements(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(activate_backward)(begin, end, args);
  });
}

}  // namespace muster::trainer::cpu
#endif
