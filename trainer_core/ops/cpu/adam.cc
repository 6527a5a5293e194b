// Adam over flat ranges: one pass over the blocks.
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/adam.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

// Updates both moments and calls store(slice, direction).
template <class Store>
HWY_INLINE void moments(int64_t n, const AdamStep& step, const float* grads, float* m, float* v,
                        const Store& store) {
  const FloatTag d;
  const auto constant = [d](double value) { return hn::Set(d, static_cast<float>(value)); };
  const FloatVec scale = constant(step.grad_scale);
  const FloatVec b1 = constant(step.b1), b1_rest = constant(1 - step.b1);
  const FloatVec b2 = constant(step.b2), b2_rest = constant(1 - step.b2);
  const FloatVec m_correction = constant(1 / step.bias_correction1);
  const FloatVec v_correction = constant(1 / step.bias_correction2);
  const FloatVec eps = constant(step.eps), eps_root = constant(step.eps_root);
  for_slices(n, [&](Slice s) {
    const FloatVec g = hn::Mul(s.load(grads), scale);
    const FloatVec m_new = hn::MulAdd(b1, s.load(m), hn::Mul(b1_rest, g));
    const FloatVec v_new = hn::MulAdd(b2, s.load(v), hn::Mul(b2_rest, hn::Mul(g, g)));
    s.store(m_new, m);
    s.store(v_new, v);
    const FloatVec root = hn::Sqrt(hn::MulAdd(v_new, v_correction, eps_root));
    store(s, hn::Div(hn::Mul(m_new, m_correction), hn::Add(root, eps)));
  });
}

void adam(int64_t n, const AdamStep& step, const float* grads, float* params, float* m, float* v) {
  const FloatVec rate = hn::Set(FloatTag(), static_cast<float>(step.learning_rate));
  const FloatVec kept =
      hn::Set(FloatTag(), static_cast<float>(1 - step.learning_rate * step.weight_decay));
  moments(n, step, grads, m, v, [&](Slice s, FloatVec update) {
    s.store(hn::NegMulAdd(rate, update, hn::Mul(s.load(params), kept)), params);
  });
}

void adam_direction(int64_t n, const AdamStep& step, float* grads, float* m, float* v) {
  moments(n, step, grads, m, v, [&](Slice s, FloatVec update) { s.store(update, grads); });
}

void apply_update(int64_t n, float rate, float kept, const float* direction, float* params) {
  const FloatVec by = hn::Set(FloatTag(), rate), keep = hn::Set(FloatTag(), kept);
  for_slices(n, [&](Slice s) {
    s.store(hn::NegMulAdd(by, s.load(direction), hn::Mul(s.load(params), keep)), params);
  });
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::trainer::cpu {

HWY_EXPORT(adam);
HWY_EXPORT(adam_direction);
HWY_EXPORT(apply_update);

void adam_range(int64_t n, const AdamStep& step, const float* grads, float* params, float* m,
                float* v) {
  HWY_DYNAMIC_DISPATCH(adam)(n, step, grads, params, m, v);
}
void adam_direction_range(int64_t n, const AdamStep& step, float* grads, float* m, float* v) {
  HWY_DYNAMIC_DISPATCH(adam_direction)(n, step, grads, m, v);
}
void apply_update_range(int64_t n, float rate, float kept, const float* direction, float* params) {
  HWY_DYNAMIC_DISPATCH(apply_update)(n, rate, kept, direction, params);
}

}  // namespace muster::trainer::cpu
#endif
