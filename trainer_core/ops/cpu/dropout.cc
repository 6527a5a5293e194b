// Dropout's masks, made where they are used.
#include <algorithm>
#include <cmath>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/dropout.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/philox.inc"
#include "trainer_core/ops/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

// x = 0 where a word is below the threshold, else x * factor. Words may be read up to a vector
// beyond `count`.
template <class T>
HWY_INLINE void apply_words(const uint32_t* words, uint32_t threshold, float factor, int64_t count,
                            T* x) {
  const WordTag d;
  const hn::RebindToSigned<WordTag> signed_words;
  constexpr uint32_t kSign = 0x80000000;  // flipping it orders words like signed integers
  const auto limit = hn::BitCast(signed_words, hn::Set(d, threshold ^ kSign));
  const FloatVec by = hn::Set(FloatTag(), factor);
  for_slices(count, [&](Slice s) {
    const WordVec word = hn::Xor(hn::LoadU(d, words + s.begin), hn::Set(d, kSign));
    const auto below = hn::Lt(hn::BitCast(signed_words, word), limit);
    const FloatVec kept = hn::Mul(s.load(x), by);
    s.store(hn::IfThenZeroElse(hn::RebindMask(FloatTag(), below), kept), x);
  });
}

// Elements [first, first + count) of one sample.
template <class T>
HWY_INLINE void drop_part(const Philox& philox, uint64_t location, uint32_t threshold, float factor,
                          int64_t first, int64_t count, T* x) {
  for_words(philox, location, first, count, [&](const uint32_t* words, int64_t i, int64_t n) {
    apply_words(words, threshold, factor, n, x + i);
  });
}

void dropout(int64_t begin, int64_t end, const DropoutRows& args) {
  constexpr double kWords = 4294967296.0;  // 2^32
  const DropoutMask& mask = args.mask;
  const auto threshold =
      static_cast<uint32_t>(std::min(std::round(mask.rate * kWords), kWords - 1));
  const auto factor = static_cast<float>(1 / (1 - mask.rate));
  mask.elements.for_stretches(args.width, begin, end,
                              [&](uint64_t sample, int64_t first, int64_t at, int64_t count) {
                                const Philox philox{.key = mask.key, .stream = sample};
                                with_type(args.dtype, [&](auto number) {
                                  drop_part(philox, mask.location, threshold, factor, first, count,
                                            static_cast<decltype(number)*>(args.x) + at);
                                });
                              });
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "trainer_core/ops/cpu/cpu_ops.h"
#include "trainer_core/ops/shape_checks.h"

namespace muster::trainer::cpu {

HWY_EXPORT(dropout);

void CpuOps::do_dropout(const DropoutMask& mask, const Tensor& x) {
  const DropoutRows args{mask, x.dtype, x.dim(x.rank - 1), x.float_data()};
  split(rows_of(x), x.elements(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(dropout)(begin, end, args);
  });
}

}  // namespace muster::trainer::cpu
#endif
