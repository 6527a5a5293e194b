// Softmax cross-entropy of rows of logits, with soft cap and z-loss, and the gradient in place.
#include <cmath>
#include <cstdint>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/cross_entropy.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trainer_core/ops/cpu/exp.inc"
#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

constexpr float kLowest = std::numeric_limits<float>::lowest();

void soft_cap(int64_t n, float cap, float* x) { cap_row(n, cap, x); }

// Gradient of weight * (lse + z lse² - logit[target]) in place of the logits.
HWY_INLINE void gradient_row(const CrossEntropy& args, double lse, int32_t target, float weight,
                             float* logits) {
  const FloatTag d;
  const FloatVec shift = hn::Set(d, static_cast<float>(lse));
  const FloatVec factor = hn::Set(d, static_cast<float>(weight * (1 + 2 * args.z_loss * lse)));
  const float target_logit = logits[target];
  const float inverse = args.soft_cap > 0 ? 1 / args.soft_cap : 0;
  const FloatVec steep = hn::Set(d, inverse);
  for_slices(args.vocab, [&](Slice s) {
    const FloatVec capped = s.load(logits, kLowest);
    const FloatVec p = exp_fast(hn::Sub(capped, shift));
    const FloatVec t = hn::Mul(capped, steep);
    s.store(hn::NegMulAdd(hn::Mul(t, t), hn::Mul(p, factor), hn::Mul(p, factor)), logits);
  });
  const float t = target_logit * inverse;
  logits[target] -= weight * (1 - t * t);
}

// Where there is neither cap nor z-loss, the exponentials of the loss serve the gradient, too.
HWY_INLINE void loss_row(const CrossEntropy& args, int64_t row, float* logits) {
  const FloatTag d;
  const int32_t target = args.targets[row];
  const float weight = args.weights[row];
  FloatVec largest = hn::Set(d, kLowest);
  for_slices(args.vocab, [&](Slice s) { largest = hn::Max(largest, s.load(logits, kLowest)); });
  const float peak = reduce_max(largest);
  const FloatVec shift = hn::Set(d, peak);
  const float target_logit = logits[target];

  FloatVec total = hn::Zero(d);
  const bool keep = args.gradient && !args.has_extras();
  for_slices(args.vocab, [&](Slice s) {
    const FloatVec e = exp_fast(hn::Sub(s.load(logits, kLowest), shift));
    if (keep) s.store(e, logits);
    total = hn::Add(total, e);
  });
  const double denominator = reduce_sum(total);
  const double lse = std::log(denominator) + peak;
  args.losses[row] = static_cast<float>(static_cast<double>(weight) *
                                        (lse - target_logit + args.z_loss * lse * lse));
  if (!args.gradient) return;
  if (args.has_extras()) return gradient_row(args, lse, target, weight, logits);
  const FloatVec factor = hn::Set(d, static_cast<float>(weight / denominator));
  for_slices(args.vocab, [&](Slice s) { s.store(hn::Mul(s.load(logits), factor), logits); });
  logits[target] -= weight;
}

void cross_entropy(int64_t begin, int64_t end, const CrossEntropy& args) {
  for (int64_t row = begin; row < end; ++row) {
    float* logits = args.logits + row * args.vocab;
    if (args.soft_cap > 0) cap_row(args.vocab, args.soft_cap, logits);
    loss_row(args, row, logits);
  }
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::trainer::cpu {

HWY_EXPORT(cross_entropy);
HWY_EXPORT(soft_cap);

void cross_entropy_rows(int64_t begin, int64_t end, const CrossEntropy& args) {
  HWY_DYNAMIC_DISPATCH(cross_entropy)(begin, end, args);
}
void soft_cap_range(int64_t n, float cap, float* x) { HWY_DYNAMIC_DISPATCH(soft_cap)(n, cap, x); }

}  // namespace muster::trainer::cpu
#endif
