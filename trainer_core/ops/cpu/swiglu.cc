// SwiGLU: gate sigmoid(gate) up, and its gradient in place.
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/swiglu.cc"
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

void swiglu(int64_t begin, int64_t end, int64_t width, const float* gate_up, float* out) {
  for (int64_t row = begin; row < end; ++row) {
    const float* gate = gate_up + row * 2 * width;
    const float* up = gate + width;
    float* to = out + row * width;
    for_slices(width, [&](Slice s) {
      const FloatVec g = s.load(gate);
      s.store(hn::Mul(hn::Mul(g, sigmoid(g)), s.load(up)), to);
    });
  }
}

void swiglu_backward(int64_t begin, int64_t end, int64_t width, const float* dout, float* gate_up) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0F);
  for (int64_t row = begin; row < end; ++row) {
    float* gate = gate_up + row * 2 * width;
    float* up = gate + width;
    const float* from = dout + row * width;
    for_slices(width, [&](Slice s) {
      const FloatVec g = s.load(gate);
      const FloatVec u = s.load(up);
      const FloatVec grad = s.load(from);
      const FloatVec sig = sigmoid(g);
      const FloatVec silu = hn::Mul(g, sig);
      // silu' = sig (1 + g (1 - sig))
      const FloatVec slope = hn::Mul(sig, hn::MulAdd(g, hn::Sub(one, sig), one));
      s.store(hn::Mul(hn::Mul(grad, u), slope), gate);
      s.store(hn::Mul(grad, silu), up);
    });
  }
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::trainer::cpu {

HWY_EXPORT(swiglu);
HWY_EXPORT(swiglu_backward);

void swiglu_rows(int64_t begin, int64_t end, int64_t width, const float* gate_up, float* out) {
  HWY_DYNAMIC_DISPATCH(swiglu)(begin, end, width, gate_up, out);
}
void swiglu_backward_rows(int64_t begin, int64_t end, int64_t width, const float* dout,
                          float* gate_up) {
  HWY_DYNAMIC_DISPATCH(swiglu_backward)(begin, end, width, dout, gate_up);
}

}  // namespace muster::trainer::cpu
#endif
