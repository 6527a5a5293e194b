// Softmax cross-entropy of rows of logits, or of slices of rows, with soft cap and z-loss, and its
// gradient.
#include <algorithm>
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

// A row's contribution to its softmax.
struct RowSum {
  float peak;   // the largest
  float total;  // sum of exp(logit - peak)
};
HWY_INLINE float largest_of(int64_t n, const float* logits) {
  FloatVec largest = hn::Set(FloatTag(), kLowest);
  for_slices(n, [&](Slice s) { largest = hn::Max(largest, s.load(logits, kLowest)); });
  return reduce_max(largest);
}
// Optionally replaces the logits by their exponentials.
HWY_INLINE RowSum sum_exponentials(int64_t n, bool keep, float* logits) {
  const FloatTag d;
  const float peak = largest_of(n, logits);
  const FloatVec shift = hn::Set(d, peak);
  FloatVec total = hn::Zero(d);
  for_slices(n, [&](Slice s) {
    const FloatVec e = exp_fast(hn::Sub(s.load(logits, kLowest), shift));
    if (keep) s.store(e, logits);
    total = hn::Add(total, e);
  });
  return {peak, reduce_sum(total)};
}

// How a row's logits become gradients: factor * exp(logit - shift), and at the target `weight`
// less.
struct LossSlope {
  float shift;
  float factor;
  float weight;
};

HWY_INLINE void store_element(float value, float* to) { *to = value; }
HWY_INLINE void store_element(float value, Bf16* to) { *to = Bf16::round(value); }

// Writes the gradient of weight * (lse + z lse² - logit[target]) with respect to n capped logits.
// `target` is negative if it is in another slice. `gradient` may be `logits`.
template <class T>
HWY_INLINE void gradient_row(const LossSlope& slope, int64_t n, float cap, int64_t target,
                             const float* logits, T* gradient) {
  const FloatTag d;
  const FloatVec shift = hn::Set(d, slope.shift);
  const FloatVec factor = hn::Set(d, slope.factor);
  const float target_logit = target < 0 ? 0 : logits[target];
  const float inverse = cap > 0 ? 1 / cap : 0;
  const FloatVec steep = hn::Set(d, inverse);
  const auto rise = [&](FloatVec capped) {
    const FloatVec p = exp_fast(hn::Sub(capped, shift));
    const FloatVec t = hn::Mul(capped, steep);
    return hn::NegMulAdd(hn::Mul(t, t), hn::Mul(p, factor), hn::Mul(p, factor));
  };
  for_slices(n, [&](Slice s) { s.store(rise(s.load(logits, kLowest)), gradient); });
  if (target < 0) return;
  const float t = target_logit * inverse;
  const float risen = hn::GetLane(rise(hn::Set(d, target_logit)));
  store_element(risen - slope.weight * (1 - t * t), gradient + target);
}

HWY_INLINE float loss_of(double lse, float target_logit, double z_loss, float weight) {
  return static_cast<float>(static_cast<double>(weight) *
                            (lse - target_logit + z_loss * lse * lse));
}

// Computes a row's loss, and its gradient unless `gradient` is null. Without cap and z-loss, the
// gradient reuses the exponentials of the loss.
template <class T>
HWY_INLINE void loss_row(const CrossEntropy& args, int64_t row, float* logits, T* gradient) {
  const FloatTag d;
  const int32_t target = args.targets[row];
  const float weight = args.weights[row], target_logit = logits[target];
  const RowSum sum =
      sum_exponentials(args.vocab, gradient != nullptr && !args.has_extras(), logits);
  const double denominator = sum.total;
  const double lse = std::log(denominator) + sum.peak;
  args.losses[row] = loss_of(lse, target_logit, args.z_loss, weight);
  if (gradient == nullptr) return;
  if (args.has_extras()) {
    const LossSlope slope{static_cast<float>(lse),
                          static_cast<float>(weight * (1 + 2 * args.z_loss * lse)), weight};
    return gradient_row(slope, args.vocab, args.soft_cap, target, logits, gradient);
  }
  const FloatVec factor = hn::Set(d, static_cast<float>(weight / denominator));
  const float probability = hn::GetLane(hn::Mul(hn::Set(d, logits[target]), factor));
  for_slices(args.vocab, [&](Slice s) { s.store(hn::Mul(s.load(logits), factor), gradient); });
  store_element(probability - weight, gradient + target);
}

void cross_entropy(int64_t begin, int64_t end, const CrossEntropy& args) {
  with_type(args.gradient_type, [&](auto element) {
    using T = decltype(element);
    for (int64_t row = begin; row < end; ++row) {
      float* logits = args.logits + row * args.vocab;
      if (args.soft_cap > 0) cap_row(args.vocab, args.soft_cap, logits);
      loss_row(args, row, logits,
               args.gradient == nullptr ? nullptr : row_of<T>(args.gradient, row, args.vocab));
    }
  });
}

// Returns the column of a row's target in the slice; -1: in another slice.
HWY_INLINE int64_t column_of(const LogitSlice& args, int64_t row) {
  const int64_t column = args.targets[row] - args.first;
  return column >= 0 && column < args.width ? column : -1;
}

void logit_sums(int64_t begin, int64_t end, const LogitSlice& args, float* sums) {
  for (int64_t row = begin; row < end; ++row) {
    float* logits = args.logits + row * args.width;
    if (args.soft_cap > 0) cap_row(args.width, args.soft_cap, logits);
    const RowSum sum = sum_exponentials(args.width, false, logits);
    const int64_t target = column_of(args, row);
    float* to = sums + row * kLogitSums;
    to[0] = sum.peak;
    to[1] = sum.total;
    to[2] = target < 0 ? 0 : logits[target];
  }
}

struct WholeRow {
  float peak;
  double total;  // sum of exp(logit - peak)
  float target_logit;

  double lse() const { return std::log(total) + peak; }
};
HWY_INLINE WholeRow whole_row(const SlicedLoss& args, int64_t row) {
  const auto of_slice = [&](int64_t slice) {
    return args.sums + (slice * args.rows + row) * kLogitSums;
  };
  float peak = kLowest, target_logit = 0;
  for (int64_t slice = 0; slice < args.slices; ++slice) {
    peak = std::max(peak, of_slice(slice)[0]);
    target_logit += of_slice(slice)[2];
  }
  double total = 0;
  for (int64_t slice = 0; slice < args.slices; ++slice)
    total += of_slice(slice)[1] * std::exp(static_cast<double>(of_slice(slice)[0]) - peak);
  return {peak, total, target_logit};
}

void sliced_loss(int64_t begin, int64_t end, const SlicedLoss& args) {
  for (int64_t row = begin; row < end; ++row) {
    const WholeRow whole = whole_row(args, row);
    args.losses[row] = loss_of(whole.lse(), whole.target_logit, args.z_loss, args.weights[row]);
  }
}

void sliced_gradient(int64_t begin, int64_t end, const SlicedLoss& args, const LogitSlice& slice) {
  with_type(slice.gradient_type, [&](auto element) {
    using T = decltype(element);
    for (int64_t row = begin; row < end; ++row) {
      const WholeRow whole = whole_row(args, row);
      const float weight = args.weights[row];
      const double factor = weight * (1 + 2 * args.z_loss * whole.lse()) / whole.total;
      gradient_row({whole.peak, static_cast<float>(factor), weight}, slice.width, slice.soft_cap,
                   column_of(slice, row), slice.logits + row * slice.width,
                   row_of<T>(slice.gradient, row, slice.width));
    }
  });
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "trainer_core/ops/cpu/cpu_ops.h"
#include "trainer_core/ops/cpu/value_checks.h"

namespace muster::trainer::cpu {

HWY_EXPORT(cross_entropy);
HWY_EXPORT(soft_cap);
HWY_EXPORT(logit_sums);
HWY_EXPORT(sliced_loss);
HWY_EXPORT(sliced_gradient);

namespace {

LogitSlice slice_of(const LossShape& shape, const VocabularySlice& slice, const Tensor& logits,
                    const Tensor& targets) {
  check_ids(targets, slice.ids(logits.dim(1)), "target");
  return {slice.first, logits.dim(1), static_cast<float>(shape.soft_cap), logits.f32(),
          targets.i32()};
}

SlicedLoss loss_of(const LossShape& shape, const Tensor& sums, const Tensor& weights,
                   const Tensor& losses) {
  const int64_t rows = weights.elements();
  const int64_t slices = rows == 0 ? 0 : sums.elements() / (rows * kLogitSums);
  return {rows, slices, shape.z_loss, sums.f32(), weights.f32(), losses.f32()};
}

}  // namespace

void CpuOps::do_soft_cap(double cap, const Tensor& x) {
  const int64_t n = x.elements();
  parallel_for(useful_threads(threads_, n), n, [&](int64_t begin, int64_t end, int) {
    HWY_DYNAMIC_DISPATCH(soft_cap)(end - begin, static_cast<float>(cap), x.f32() + begin);
  });
}

void CpuOps::do_cross_entropy(const LossShape& shape, const Tensor& logits, const Tensor& targets,
                              const Tensor& weights, const Tensor& losses) {
  loss(shape, logits, targets, weights, losses, {});
}
void CpuOps::do_cross_entropy_backward(const LossShape& shape, const Tensor& logits,
                                       const Tensor& targets, const Tensor& weights,
                                       const Tensor& losses, const Tensor& gradient) {
  loss(shape, logits, targets, weights, losses, gradient);
}

void CpuOps::loss(const LossShape& shape, const Tensor& logits, const Tensor& targets,
                  const Tensor& weights, const Tensor& losses, const Tensor& gradient) {
  const int64_t rows = logits.dim(0), vocab = logits.dim(1);
  check_ids(targets, vocab, "target");
  const CrossEntropy args{.vocab = vocab,
                          .soft_cap = static_cast<float>(shape.soft_cap),
                          .z_loss = shape.z_loss,
                          .logits = logits.f32(),
                          .targets = targets.i32(),
                          .weights = weights.f32(),
                          .losses = losses.f32(),
                          .gradient_type = gradient.dtype,
                          .gradient = gradient.data};
  parallel_for(useful_threads(threads_, logits.elements()), rows,
               [&](int64_t begin, int64_t end, int) {
                 HWY_DYNAMIC_DISPATCH(cross_entropy)(begin, end, args);
               });
}

void CpuOps::do_logit_sums(const LossShape& shape, const VocabularySlice& slice,
                           const Tensor& logits, const Tensor& targets, const Tensor& sums) {
  const LogitSlice args = slice_of(shape, slice, logits, targets);
  parallel_for(useful_threads(threads_, logits.elements()), logits.dim(0),
               [&](int64_t begin, int64_t end, int) {
                 HWY_DYNAMIC_DISPATCH(logit_sums)(begin, end, args, sums.f32());
               });
}

void CpuOps::do_sliced_cross_entropy(const LossShape& shape, const Tensor& sums,
                                     const Tensor& weights, const Tensor& losses) {
  const SlicedLoss args = loss_of(shape, sums, weights, losses);
  parallel_for(useful_threads(threads_, sums.elements()), args.rows,
               [&](int64_t begin, int64_t end, int) {
                 HWY_DYNAMIC_DISPATCH(sliced_loss)(begin, end, args);
               });
}

void CpuOps::do_sliced_cross_entropy_backward(const LossShape& shape, const VocabularySlice& slice,
                                              const Tensor& logits, const Tensor& targets,
                                              const Tensor& sums, const Tensor& weights,
                                              const Tensor& losses, const Tensor& gradient) {
  LogitSlice own = slice_of(shape, slice, logits, targets);
  own.gradient_type = gradient.dtype;
  own.gradient = gradient.data;
  const SlicedLoss args = loss_of(shape, sums, weights, losses);
  parallel_for(useful_threads(threads_, logits.elements()), args.rows,
               [&](int64_t begin, int64_t end, int) {
                 HWY_DYNAMIC_DISPATCH(sliced_loss)(begin, end, args);
                 HWY_DYNAMIC_DISPATCH(sliced_gradient)(begin, end, args, own);
               });
}

}  // namespace muster::trainer::cpu
#endif
