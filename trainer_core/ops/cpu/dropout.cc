// Dropout's masks, made where they are used.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/dropout.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "common/philox.h"
#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

using WordTag = hn::ScalableTag<uint32_t>;
using WordVec = hn::Vec<WordTag>;

// Words made at a time, of 64 positions: any vector's lanes divide it.
constexpr int64_t kChunk = 256;
// Positions of one place in the model: a sequence of the largest size has 2^48 elements, four words to a position.
constexpr int kPlaceShift = 46;

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void fill_chunk(const Philox& philox, uint64_t first, uint32_t* words) {
  philox.fill(first, std::span<uint32_t, kChunk>(words, kChunk));
}
#else
struct Halves {
  WordVec high, low;
};

// The 64-bit products of each lane.
HWY_INLINE Halves multiply(WordVec a, uint32_t by) {
  const WordTag d;
  const hn::Repartition<uint64_t, WordTag> d64;
  const WordVec factor = hn::Set(d, by);
  const auto even = hn::MulEven(a, factor);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a))), factor);
  const auto upper = hn::Set(d64, 0xFFFFFFFF00000000);
  return {hn::BitCast(d, hn::Or(hn::ShiftRight<32>(even), hn::And(odd, upper))),
          hn::BitCast(d, hn::Or(hn::AndNot(upper, even), hn::ShiftLeft<32>(odd)))};
}

// Philox::fill of a chunk, whose first position is a multiple of 64.
HWY_INLINE void fill_chunk(const Philox& philox, uint64_t first, uint32_t* words) {
  const WordTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < kChunk / 4; i += lanes) {
    WordVec c0 = hn::Iota(d, static_cast<uint32_t>(first + static_cast<uint64_t>(i)));
    WordVec c1 = hn::Set(d, static_cast<uint32_t>(first >> 32));
    WordVec c2 = hn::Set(d, static_cast<uint32_t>(philox.stream));
    WordVec c3 = hn::Set(d, static_cast<uint32_t>(philox.stream >> 32));
    auto k0 = static_cast<uint32_t>(philox.key), k1 = static_cast<uint32_t>(philox.key >> 32);
    for (int round = 0; round < Philox::kRounds; ++round) {
      const Halves p0 = multiply(c0, Philox::kM0), p1 = multiply(c2, Philox::kM1);
      c0 = hn::Xor(hn::Xor(p1.high, c1), hn::Set(d, k0));
      c1 = p1.low;
      c2 = hn::Xor(hn::Xor(p0.high, c3), hn::Set(d, k1));
      c3 = p0.low;
      k0 += Philox::kW0;
      k1 += Philox::kW1;
    }
    hn::StoreInterleaved4(c0, c1, c2, c3, d, words + 4 * i);
  }
}

#endif

// x = 0 where a word is below the threshold, else x * factor. Words may be read up to a vector beyond `count`.
template <class T>
HWY_INLINE void apply_words(const uint32_t* words, uint32_t threshold, float factor, int64_t count,
                            T* x) {
  const WordTag d;
  const hn::RebindToSigned<WordTag> signed_words;
  constexpr uint32_t kSign = 0x80000000;  // flipped, words are ordered as signed numbers are
  const auto limit = hn::BitCast(signed_words, hn::Set(d, threshold ^ kSign));
  const FloatVec by = hn::Set(FloatTag(), factor);
  for_slices(count, [&](Slice s) {
    const WordVec word = hn::Xor(hn::LoadU(d, words + s.begin), hn::Set(d, kSign));
    const auto below = hn::Lt(hn::BitCast(signed_words, word), limit);
    const FloatVec kept = hn::Mul(s.load(x), by);
    s.store(hn::IfThenZeroElse(hn::RebindMask(FloatTag(), below), kept), x);
  });
}

// Elements [first, first + count) of one sequence.
template <class T>
HWY_INLINE void drop_part(const Philox& philox, uint64_t place, uint32_t threshold, float factor,
                          int64_t first, int64_t count, T* x) {
  HWY_ALIGN uint32_t words[kChunk + HWY_MAX_BYTES / sizeof(uint32_t)] = {};
  for (int64_t i = 0; i < count;) {
    const int64_t at = first + i, skipped = at % kChunk;
    const int64_t taken = std::min(kChunk - skipped, count - i);
    fill_chunk(philox, (place << kPlaceShift) + static_cast<uint64_t>(at / kChunk * (kChunk / 4)),
               words);
    apply_words(words + skipped, threshold, factor, taken, x + i);
    i += taken;
  }
}

void dropout(int64_t begin, int64_t end, const DropoutRange& args) {
  constexpr double kWords = 4294967296.0;  // 2^32
  const DropoutMask& mask = args.mask;
  const auto threshold =
      static_cast<uint32_t>(std::min(std::round(mask.rate * kWords), kWords - 1));
  const auto factor = static_cast<float>(1 / (1 - mask.rate));
  while (begin < end) {
    const int64_t sequence = begin / args.each, first = begin % args.each;
    const int64_t count = std::min(args.each - first, end - begin);
    const Philox philox{.key = mask.key,
                        .stream = mask.first_sample + static_cast<uint64_t>(sequence)};
    with_type(args.dtype, [&](auto number) {
      drop_part(philox, mask.place, threshold, factor, first, count,
                static_cast<decltype(number)*>(args.x) + begin);
    });
    begin += count;
  }
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::trainer::cpu {

HWY_EXPORT(dropout);

void dropout_range(int64_t begin, int64_t end, const DropoutRange& args) {
  HWY_DYNAMIC_DISPATCH(dropout)(begin, end, args);
}

}  // namespace muster::trainer::cpu
#endif
