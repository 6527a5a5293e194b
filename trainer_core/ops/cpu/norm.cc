// RMSNorm, forward (with the residual addition) and backward.
#include <cmath>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

// Remat relies on one thing here: the norm of a stored sum has the bits of the norm made while
// summing.
void norm_forward(int64_t begin, int64_t end, const NormForward& args) {
  const FloatTag d;
  for (int64_t row = begin; row < end; ++row) {
    const float* x = args.x + row * args.width;
    FloatVec squares = hn::Zero(d);
    if (args.delta != nullptr) {
      const float* delta = args.delta + row * args.width;
      float* sum = args.sum + row * args.width;
      for_slices(args.width, [&](Slice s) {
        const FloatVec v = hn::Add(s.load(x), s.load(delta));
        s.store(v, sum);
        squares = hn::MulAdd(v, v, squares);
      });
      x = sum;
    } else {
      for_slices(args.width, [&](Slice s) {
        const FloatVec v = s.load(x);
        squares = hn::MulAdd(v, v, squares);
      });
    }
    const float mean = reduce_sum(squares) / static_cast<float>(args.width);
    const float rstd = 1.0F / std::sqrt(mean + args.eps);
    args.rstd[row] = rstd;
    const FloatVec factor = hn::Set(d, rstd);
    float* y = args.y + row * args.width;
    for_slices(args.width, [&](Slice s) {
      s.store(hn::Mul(hn::Mul(s.load(x), factor), s.load(args.gain)), y);
    });
  }
}

void norm_backward(int64_t begin, int64_t end, const NormBackward& args, float* dgain) {
  const FloatTag d;
  for (int64_t row = begin; row < end; ++row) {
    const float* dy = args.dy + row * args.width;
    const float* x = args.x + row * args.width;
    float* dx = args.dx + row * args.width;
    const float rstd = args.rstd[row];
    const FloatVec factor = hn::Set(d, rstd);
    FloatVec dot = hn::Zero(d);  // of dy gain with x
    for_slices(args.width, [&](Slice s) {
      const FloatVec g = s.load(dy);
      const FloatVec v = s.load(x);
      dot = hn::MulAdd(hn::Mul(g, s.load(args.gain)), v, dot);
      s.store(hn::MulAdd(g, hn::Mul(v, factor), s.load(dgain)), dgain);
    });
    const float mean = reduce_sum(dot) / static_cast<float>(args.width);
    const FloatVec along_x = hn::Set(d, rstd * rstd * mean);
    for_slices(args.width, [&](Slice s) {
      const FloatVec inner =
          hn::NegMulAdd(s.load(x), along_x, hn::Mul(s.load(dy), s.load(args.gain)));
      s.store(hn::MulAdd(inner, factor, s.load(dx)), dx);
    });
  }
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::trainer::cpu {

HWY_EXPORT(norm_forward);
HWY_EXPORT(norm_backward);

void rms_norm_rows(int64_t begin, int64_t end, const NormForward& args) {
  HWY_DYNAMIC_DISPATCH(norm_forward)(begin, end, args);
}
void rms_norm_backward_rows(int64_t begin, int64_t end, const NormBackward& args, float* dgain) {
  HWY_DYNAMIC_DISPATCH(norm_backward)(begin, end, args, dgain);
}

}  // namespace muster::trainer::cpu
#endif
