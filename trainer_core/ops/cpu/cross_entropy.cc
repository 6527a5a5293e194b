// Softmax cross-entropy of rows of logits, with the gradient in place.
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

void cross_entropy(int64_t begin, int64_t end, const CrossEntropy& args) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  const FloatTag d;
  for (int64_t row = begin; row < end; ++row) {
    float* logits = args.logits + row * args.vocab;
    const int32_t target = args.targets[row];
    const float weight = args.weights[row];

    FloatVec largest = hn::Set(d, kLowest);
    for_slices(args.vocab, [&](Slice s) { largest = hn::Max(largest, s.load(logits, kLowest)); });
    const float peak = reduce_max(largest);
    const FloatVec shift = hn::Set(d, peak);
    const float target_logit = logits[target];

    FloatVec total = hn::Zero(d);
    for_slices(args.vocab, [&](Slice s) {
      const FloatVec e = exp_fast(hn::Sub(s.load(logits, kLowest), shift));
      if (args.gradient) s.store(e, logits);
      total = hn::Add(total, e);
    });
    const double denominator = reduce_sum(total);
    args.losses[row] = static_cast<float>(static_cast<double>(weight) *
                                          (std::log(denominator) + peak - target_logit));
    if (!args.gradient) continue;

    const FloatVec factor = hn::Set(d, static_cast<float>(weight / denominator));
    for_slices(args.vocab, [&](Slice s) { s.store(hn::Mul(s.load(logits), factor), logits); });
    logits[target] -= weight;
  }
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::trainer::cpu {

HWY_EXPORT(cross_entropy);

void cross_entropy_rows(int64_t begin, int64_t end, const CrossEntropy& args) {
  HWY_DYNAMIC_DISPATCH(cross_entropy)(begin, end, args);
}

}  // namespace muster::trainer::cpu
#endif
