// Rotary position embedding (Su et al., 2021), half-split, in place on queries and keys.
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/rope.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

void rotate(int64_t begin, int64_t end, const AttentionShape& shape, const float* cos,
            const float* sin, float sign, float* qkv) {
  const FloatTag d;
  const FloatVec direction = hn::Set(d, sign);
  const int64_t half = shape.head_dim / 2;
  for (int64_t row = begin; row < end; ++row) {
    const float* c = cos + row % shape.seq_len * half;
    const float* s = sin + row % shape.seq_len * half;
    float* head = qkv + row * shape.qkv_width();
    for (int64_t h = 0; h < shape.heads + shape.kv_heads; ++h, head += shape.head_dim) {
      float* upper = head + half;
      for_slices(half, [&](Slice at) {
        const FloatVec a = at.load(head);
        const FloatVec b = at.load(upper);
        const FloatVec cosine = at.load(c);
        const FloatVec sine = hn::Mul(at.load(s), direction);
        at.store(hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), head);
        at.store(hn::MulAdd(a, sine, hn::Mul(b, cosine)), upper);
      });
    }
  }
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::trainer::cpu {

HWY_EXPORT(rotate);

void rope_rows(int64_t begin, int64_t end, const AttentionShape& shape, const float* cos,
               const float* sin, float sign, float* qkv) {
  HWY_DYNAMIC_DISPATCH(rotate)(begin, end, shape, cos, sin, sign, qkv);
}

}  // namespace muster::trainer::cpu
#endif
