// Rotary position embedding (Su et al., 2021), in place on queries and keys.
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/rope.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

struct Angles {
  const float* cos;  // (h/2) of a position
  const float* sin;
  float sign;  // factor of the sines: 1 or -1
};

template <class T>
HWY_INLINE void rotate_halves(int64_t half, Angles angles, T* head) {
  const FloatVec direction = hn::Set(FloatTag(), angles.sign);
  T* upper = head + half;
  for_slices(half, [&](Slice at) {
    const FloatVec a = at.load(head);
    const FloatVec b = at.load(upper);
    const FloatVec cosine = at.load(angles.cos);
    const FloatVec sine = hn::Mul(at.load(angles.sin), direction);
    at.store(hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), head);
    at.store(hn::MulAdd(a, sine, hn::Mul(b, cosine)), upper);
  });
}

template <class T>
HWY_INLINE void rotate_neighbours(int64_t half, Angles angles, T* head) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = to_float(head[2 * i]), b = to_float(head[2 * i + 1]);
    const float cosine = angles.cos[i], sine = angles.sign * angles.sin[i];
    head[2 * i] = from_float<T>(a * cosine - b * sine);
    head[2 * i + 1] = from_float<T>(b * cosine + a * sine);
  }
}

template <class T>
HWY_INLINE void rotate_heads(RopePairs pairs, int64_t heads, int64_t half, Angles angles, T* head) {
  for (int64_t h = 0; h < heads; ++h, head += 2 * half) {
    if (pairs == RopePairs::kHalves) {
      rotate_halves(half, angles, head);
    } else {
      rotate_neighbours(half, angles, head);
    }
  }
}

template <class T>
HWY_INLINE void rotate_rows(int64_t begin, int64_t end, const Rope& args) {
  const AttentionShape& shape = args.shape;
  const int64_t half = shape.head_dim / 2;
  const int32_t* starts = starts_of(shape, 0);
  shape.token_rows().for_runs(begin, end, [&](int64_t first, int64_t, const PositionRun& run) {
    for (int64_t row = first; row < first + run.count; ++row) {
      const int64_t start = starts == nullptr ? 0 : starts[row];
      const int64_t at = (run.position + row - first - start) * half;
      rotate_heads(args.pairs, shape.heads + shape.kv_heads, half,
                   Angles{args.cos + at, args.sin + at, args.sign},
                   row_of<T>(args.qkv, row, shape.qkv_width()));
    }
  });
}

void rotate(int64_t begin, int64_t end, const Rope& args) {
  with_type(args.dtype, [&](auto number) { rotate_rows<decltype(number)>(begin, end, args); });
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "trainer_core/ops/cpu/cpu_ops.h"
#include "trainer_core/ops/cpu/value_checks.h"

namespace muster::trainer::cpu {

HWY_EXPORT(rotate);

void CpuOps::do_rope(const AttentionShape& shape, const Tensor& cos, const Tensor& sin,
                     RopePairs pairs, RopeDirection direction, const Tensor& qkv) {
  check_starts(shape);
  const float sign = direction == RopeDirection::kForward ? 1.0F : -1.0F;
  const Rope args{qkv.dtype, shape, pairs, sign, cos.f32(), sin.f32(), qkv.data};
  split(shape.rows(), qkv.elements(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(rotate)(begin, end, args);
  });
}

}  // namespace muster::trainer::cpu
#endif
