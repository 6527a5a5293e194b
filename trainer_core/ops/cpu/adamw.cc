// AdamW over a flat range: one pass over the four blocks.
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/adamw.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

void adamw(int64_t n, const AdamWStep& step, const float* grads, float* params, float* m,
           float* v) {
  const FloatTag d;
  const auto constant = [d](double value) { return hn::Set(d, static_cast<float>(value)); };
  const FloatVec scale = constant(step.grad_scale);
  const FloatVec b1 = constant(step.b1), b1_rest = constant(1 - step.b1);
  const FloatVec b2 = constant(step.b2), b2_rest = constant(1 - step.b2);
  const FloatVec m_correction = constant(1 / step.bias_correction1);
  const FloatVec v_correction = constant(1 / step.bias_correction2);
  const FloatVec eps = constant(step.eps), eps_root = constant(step.eps_root);
  const FloatVec rate = constant(step.learning_rate);
  const FloatVec kept = constant(1 - step.learning_rate * step.weight_decay);
  for_slices(n, [&](Slice s) {
    const FloatVec g = hn::Mul(s.load(grads), scale);
    const FloatVec m_new = hn::MulAdd(b1, s.load(m), hn::Mul(b1_rest, g));
    const FloatVec v_new = hn::MulAdd(b2, s.load(v), hn::Mul(b2_rest, hn::Mul(g, g)));
    s.store(m_new, m);
    s.store(v_new, v);
    const FloatVec root = hn::Sqrt(hn::MulAdd(v_new, v_correction, eps_root));
    const FloatVec update = hn::Div(hn::Mul(m_new, m_correction), hn::Add(root, eps));
    s.store(hn::NegMulAdd(rate, update, hn::Mul(s.load(params), kept)), params);
  });
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::trainer::cpu {

HWY_EXPORT(adamw);

void adamw_range(int64_t n, const AdamWStep& step, const float* grads, float* params, float* m,
                 float* v) {
  HWY_DYNAMIC_DISPATCH(adamw)(n, step, grads, params, m, v);
}

}  // namespace muster::trainer::cpu
#endif
