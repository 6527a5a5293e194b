// Adam over flat ranges: one pass over the blocks.
#include <cstdint>
#include <optional>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/adam.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/philox.inc"
#include "trainer_core/ops/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

// Rounds v stochastically to one of the two nearest bf16 values, so that the mean is v.
HWY_INLINE FloatVec round_by_chance(FloatVec v, const uint32_t* words) {
  const WordTag d;
  const WordVec word = hn::BitCast(d, v);
  const WordVec noise = hn::And(hn::LoadU(d, words), hn::Set(d, 0xffff));
  const WordVec cut = hn::And(hn::Add(word, noise), hn::Set(d, 0xffff0000));
  const auto nan = hn::RebindMask(d, hn::IsNaN(v));
  return hn::BitCast(FloatTag(), hn::IfThenElse(nan, word, cut));
}

// Calls body(slice, rounded) for the vectors of [begin, end): m is to be stored as rounded(m).
template <class Body>
HWY_INLINE void for_rounded(int64_t begin, int64_t end, const std::optional<AdamStep::Noise>& noise,
                            const Body& body) {
  if (!noise) {
    for_slices(end - begin, [&](Slice s) {
      body(Slice{begin + s.begin, s.count, s.whole}, [](FloatVec m) { return m; });
    });
    return;
  }
  const Philox philox{.key = noise->key, .stream = noise->update};
  for_words(philox, 0, noise->first + begin, end - begin,
            [&](const uint32_t* words, int64_t at, int64_t count) {
              for_slices(count, [&](Slice s) {
                body(Slice{begin + at + s.begin, s.count, s.whole},
                     [&](FloatVec m) { return round_by_chance(m, words + s.begin); });
              });
            });
}

// Updates both moments of elements [begin, end) and calls store(slice, direction).
template <class M, class Store>
HWY_INLINE void moments(int64_t begin, int64_t end, const AdamStep& step, const float* grads, M* m,
                        float* v, const Store& store) {
  const FloatTag d;
  const auto constant = [d](double value) { return hn::Set(d, static_cast<float>(value)); };
  const FloatVec scale = constant(step.grad_scale);
  const FloatVec b1 = constant(step.b1), b1_rest = constant(1 - step.b1);
  const FloatVec b2 = constant(step.b2), b2_rest = constant(1 - step.b2);
  const FloatVec m_correction = constant(1 / step.bias_correction1);
  const FloatVec v_correction = constant(1 / step.bias_correction2);
  const FloatVec eps = constant(step.eps), eps_root = constant(step.eps_root);
  for_rounded(begin, end, step.noise, [&](Slice s, const auto& rounded) {
    const FloatVec g = hn::Mul(s.load(grads), scale);
    const FloatVec m_new = hn::MulAdd(b1, s.load(m), hn::Mul(b1_rest, g));
    const FloatVec v_new = hn::MulAdd(b2, s.load(v), hn::Mul(b2_rest, hn::Mul(g, g)));
    s.store(rounded(m_new), m);
    s.store(v_new, v);
    const FloatVec root = hn::Sqrt(hn::MulAdd(v_new, v_correction, eps_root));
    store(s, hn::Div(hn::Mul(m_new, m_correction), hn::Add(root, eps)));
  });
}

void adam(int64_t begin, int64_t end, const AdamStep& step, const float* grads,
          const Tensor& params, const Tensor& m, float* v) {
  const FloatVec rate = hn::Set(FloatTag(), static_cast<float>(step.learning_rate));
  const FloatVec kept =
      hn::Set(FloatTag(), static_cast<float>(1 - step.learning_rate * step.weight_decay));
  with_type(params.dtype, [&](auto parameter) {
    auto* const p = static_cast<decltype(parameter)*>(params.data);
    with_type(m.dtype, [&](auto number) {
      moments(begin, end, step, grads, static_cast<decltype(number)*>(m.data), v,
              [&](Slice s, FloatVec update) {
                s.store(hn::NegMulAdd(rate, update, hn::Mul(s.load(p), kept)), p);
              });
    });
  });
}

void adam_direction(int64_t begin, int64_t end, const AdamStep& step, float* grads, const Tensor& m,
                    float* v) {
  with_type(m.dtype, [&](auto number) {
    moments(begin, end, step, grads, static_cast<decltype(number)*>(m.data), v,
            [&](Slice s, FloatVec update) { s.store(update, grads); });
  });
}

void apply_update(DType dtype, int64_t n, float rate, float kept, const float* direction,
                  void* params) {
  const FloatVec by = hn::Set(FloatTag(), rate), keep = hn::Set(FloatTag(), kept);
  with_type(dtype, [&](auto number) {
    auto* const p = static_cast<decltype(number)*>(params);
    for_slices(n, [&](Slice s) {
      s.store(hn::NegMulAdd(by, s.load(direction), hn::Mul(s.load(p), keep)), p);
    });
  });
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "trainer_core/ops/cpu/cpu_ops.h"

namespace muster::trainer::cpu {

HWY_EXPORT(adam);
HWY_EXPORT(adam_direction);
HWY_EXPORT(apply_update);

void CpuOps::do_adam(const AdamStep& step, const Tensor& grads, const Tensor& params,
                     const Tensor& m, const Tensor& v) {
  elementwise(grads, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(adam)(begin, end, step, grads.f32(), params, m, v.f32());
  });
}

void CpuOps::do_adam_direction(const AdamStep& step, const Tensor& grads, const Tensor& m,
                               const Tensor& v) {
  elementwise(grads, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(adam_direction)(begin, end, step, grads.f32(), m, v.f32());
  });
}

void CpuOps::do_apply_update(double rate, double kept, const Tensor& direction,
                             const Tensor& params) {
  elementwise(params, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(apply_update)
    (params.dtype, end - begin, static_cast<float>(rate), static_cast<float>(kept),
     direction.f32() + begin, at(params, begin));
  });
}

}  // namespace muster::trainer::cpu
#endif
