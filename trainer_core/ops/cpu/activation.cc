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

HWY_INLINE FloatVec sigmoid(FloatVec x) {
  const FloatTag d;
  // Below this, exp(-x) would leave fp32; the sigmoid is a denormal there anyway.
  const FloatVec negated = hn::Min(hn::Neg(x), hn::Set(d, 88.0F));
  const FloatVec one = hn::Set(d, 1.0F);
  return hn::Div(one, hn::Add(one, exp_fast(negated)));
}

// f(x) and f'(x).
struct ValueAndSlope {
  FloatVec value;
  FloatVec slope;
};

struct Silu {
  static HWY_INLINE FloatVec value(FloatVec x) { return hn::Mul(x, sigmoid(x)); }
  // silu' = sig (1 + x (1 - sig))
  static HWY_INLINE ValueAndSlope both(FloatVec x) {
    const FloatVec one = hn::Set(FloatTag(), 1.0F);
    const FloatVec sig = sigmoid(x);
    return {hn::Mul(x, sig), hn::Mul(sig, hn::MulAdd(x, hn::Sub(one, sig), one))};
  }
};

// 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x³).
struct Gelu {
  static constexpr float kTwiceRoot = 1.5957691216057308F;
  static constexpr float kCubic = 0.044715F;

  static HWY_INLINE FloatVec twice_u(FloatVec x) {
    const FloatTag d;
    const FloatVec inner =
        hn::MulAdd(hn::Mul(x, x), hn::Set(d, kTwiceRoot * kCubic), hn::Set(d, kTwiceRoot));
    return hn::Mul(x, inner);
  }
  static HWY_INLINE FloatVec value(FloatVec x) { return hn::Mul(x, sigmoid(twice_u(x))); }
  // gelu' = sig (1 + x (1 - sig) (2u)'). Beyond 100 it is 1 or 0 in fp32; clamping x keeps the
  // products finite.
  static HWY_INLINE ValueAndSlope both(FloatVec x) {
    const FloatTag d;
    const FloatVec one = hn::Set(d, 1.0F);
    const FloatVec sig = sigmoid(twice_u(x));
    const FloatVec near = hn::Min(hn::Max(x, hn::Set(d, -100.0F)), hn::Set(d, 100.0F));
    const FloatVec steepness = hn::MulAdd(hn::Mul(near, near), hn::Set(d, 3 * kTwiceRoot * kCubic),
                                          hn::Set(d, kTwiceRoot));
    const FloatVec bend = hn::Mul(hn::Mul(near, hn::Sub(one, sig)), steepness);
    return {hn::Mul(x, sig), hn::Mul(sig, hn::Add(one, bend))};
  }
};

struct Relu {
  static HWY_INLINE FloatVec value(FloatVec x) { return hn::Max(x, hn::Zero(FloatTag())); }
  static HWY_INLINE ValueAndSlope both(FloatVec x) {
    const FloatTag d;
    const auto positive = hn::Gt(x, hn::Zero(d));
    return {value(x), hn::IfThenElseZero(positive, hn::Set(d, 1.0F))};
  }
};

template <class F, class T>
HWY_INLINE void forward_rows(int64_t begin, int64_t end, const ActivationRows& args) {
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
HWY_INLINE void backward_rows(int64_t begin, int64_t end, const ActivationRows& args) {
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
HWY_INLINE void with_activation(const ActivationRows& args, const Body& body) {
  with_type(args.dtype, [&](auto number) {
    switch (args.kind) {
      case Activation::kSilu:
        return body(Silu(), number);
      case Activation::kGelu:
        return body(Gelu(), number);
      case Activation::kRelu:
        return body(Relu(), number);
    }
  });
}

void activate(int64_t begin, int64_t end, const ActivationRows& args) {
  with_activation(args, [&](auto f, auto number) {
    forward_rows<decltype(f), decltype(number)>(begin, end, args);
  });
}

void activate_backward(int64_t begin, int64_t end, const ActivationRows& args) {
  with_activation(args, [&](auto f, auto number) {
    backward_rows<decltype(f), decltype(number)>(begin, end, args);
  });
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::trainer::cpu {

HWY_EXPORT(activate);
HWY_EXPORT(activate_backward);

void activation_rows(int64_t begin, int64_t end, const ActivationRows& args) {
  HWY_DYNAMIC_DISPATCH(activate)(begin, end, args);
}
void activation_backward_rows(int64_t begin, int64_t end, const ActivationRows& args) {
  HWY_DYNAMIC_DISPATCH(activate_backward)(begin, end, args);
}

}  // namespace muster::trainer::cpu
#endif
