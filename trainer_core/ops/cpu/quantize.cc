// Rounds to coarse grids, and computes the magnitudes that determine the scales.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <optional>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/quantize.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/philox.inc"
#include "trainer_core/ops/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

using SignedTag = hn::RebindToSigned<FloatTag>;
using SignedVec = hn::Vec<SignedTag>;

HWY_INLINE SignedVec magnitude_words(FloatVec x) { return hn::BitCast(SignedTag(), hn::Abs(x)); }

uint32_t abs_max_of(int64_t begin, int64_t end, const AbsMax& args) {
  const SignedTag d;
  SignedVec largest = hn::Zero(d);
  with_type(args.dtype, [&](auto number) {
    const auto* x = static_cast<const decltype(number)*>(args.x) + begin;
    for_slices(end - begin,
               [&](Slice s) { largest = hn::Max(largest, magnitude_words(s.load(x))); });
  });
  return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(d, largest)));
}

void abs_max_of_columns(int64_t begin, int64_t end, int64_t rows, const AbsMax& args, float* amax) {
  with_type(args.dtype, [&](auto number) {
    for (int64_t row = 0; row < rows; ++row) {
      const auto* x = row_of<decltype(number)>(args.x, row, args.width) + begin;
      for_slices(end - begin, [&](Slice s) {
        const SignedVec known = magnitude_words(s.load(amax + begin));
        s.store(hn::BitCast(FloatTag(), hn::Max(known, magnitude_words(s.load(x)))), amax + begin);
      });
    }
  });
}

// Numbers of one binade lie a quantum of 2^(exponent - mantissa bits) apart, those below the
// smallest normal number as those of its binade. The sum with 2^23 quanta has the quantum for its
// last bit: adding it rounds, to even as fp32 does.
template <int kMantissaBits, int kSmallestExponent>
HWY_INLINE FloatVec round_to_float(FloatVec x, float limit) {
  const FloatTag d;
  const WordTag dw;
  constexpr int kFloatBits = 23, kBias = 127;
  const FloatVec magnitude = hn::Min(hn::Abs(x), hn::Set(d, limit));
  const WordVec exponent = hn::And(hn::BitCast(dw, magnitude), hn::Set(dw, 0x7f800000));
  const WordVec smallest =
      hn::Set(dw, static_cast<uint32_t>(kSmallestExponent + kBias) << kFloatBits);
  const WordVec shift =
      hn::Set(dw, static_cast<uint32_t>(kFloatBits - kMantissaBits) << kFloatBits);
  const FloatVec large = hn::BitCast(d, hn::Add(hn::Max(exponent, smallest), shift));
  return hn::CopySignToAbs(hn::Sub(hn::Add(magnitude, large), large), x);
}

HWY_INLINE FloatVec round_to(NumberGrid grid, FloatVec x) {
  const FloatTag d;
  switch (grid) {
    case NumberGrid::kE4m3:
      return round_to_float<3, -6>(x, grid_limit(grid));
    case NumberGrid::kE5m2:
      return round_to_float<2, -14>(x, grid_limit(grid));
    case NumberGrid::kInt8:
      break;
  }
  constexpr float kLargest = 127;
  return hn::Round(hn::Min(hn::Max(x, hn::Set(d, -kLargest)), hn::Set(d, kLargest)));
}

// Like AQT, replaces a value too small to have a reciprocal by 1.
HWY_INLINE FloatVec reciprocal(FloatVec scale) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0F), inverse = hn::Div(one, scale);
  return hn::IfThenElse(hn::Gt(inverse, hn::Set(d, std::numeric_limits<float>::max())), one,
                        inverse);
}

// x / scale: Flax divides, AQT multiplies.
HWY_INLINE FloatVec scaled(NumberGrid grid, FloatVec x, FloatVec scale) {
  return grid == NumberGrid::kInt8 ? hn::Mul(x, reciprocal(scale)) : hn::Div(x, scale);
}

HWY_INLINE FloatVec keep_bad(FloatVec x, FloatVec rounded) {
  const FloatTag d;
  const auto finite = hn::Le(hn::Abs(x), hn::Set(d, std::numeric_limits<float>::max()));
  return hn::IfThenElse(finite, rounded, hn::Set(d, std::numeric_limits<float>::quiet_NaN()));
}

// One row. scale_at(slice) gives the scales.
template <class From, class To, class ScaleAt, class NoiseAt>
HWY_INLINE void quantize_row(NumberGrid grid, int64_t width, const From* x, To* out,
                             const ScaleAt& scale_at, const NoiseAt& noise_at) {
  for_slices(width, [&](Slice s) {
    const FloatVec value = s.load(x);
    s.store(keep_bad(value, round_to(grid, noise_at(s, scaled(grid, value, scale_at(s))))), out);
  });
}

// Uniform in (-1/2, 1/2), as uniform_from_bits has it.
HWY_INLINE FloatVec centred(const uint32_t* words) {
  const FloatTag d;
  const WordTag dw;
  const auto high = hn::BitCast(SignedTag(), hn::ShiftRight<9>(hn::LoadU(dw, words)));
  const FloatVec number = hn::ConvertTo(d, high);
  return hn::Sub(hn::Mul(hn::Add(number, hn::Set(d, 0.5F)), hn::Set(d, 0x1p-23F)),
                 hn::Set(d, 0.5F));
}

template <class From, class To, class ScaleAt>
HWY_INLINE void quantize_row(const Quantize& args, int64_t row, const From* x, To* out,
                             const ScaleAt& scale_at) {
  if (!args.noise) {
    return quantize_row(args.grid, args.width, x, out, scale_at,
                        [](Slice, FloatVec v) { return v; });
  }
  args.noise->elements.for_stretches(
      args.width, row, row + 1, [&](uint64_t sample, int64_t first, int64_t, int64_t count) {
        const Philox philox{.key = args.noise->key, .stream = sample};
        for_words(philox, args.noise->location, first, count,
                  [&](const uint32_t* words, int64_t i, int64_t n) {
                    quantize_row(
                        args.grid, n, x + i, out + i,
                        [&](Slice s) {
                          return scale_at(Slice{s.begin + i, s.count, s.whole});
                        },
                        [&](Slice s, FloatVec v) { return hn::Add(v, centred(words + s.begin)); });
                  });
      });
}

void quantize(int64_t begin, int64_t end, const Quantize& args) {
  const FloatTag d;
  with_type(args.from_type, [&](auto from) {
    with_type(args.to_type, [&](auto to) {
      for (int64_t row = begin; row < end; ++row) {
        const auto* x = row_of<decltype(from)>(args.x, row, args.width);
        auto* out = row_of<decltype(to)>(args.out, row, args.width);
        if (args.of == ScaleOf::kColumn) {
          quantize_row(args, row, x, out, [&](Slice s) { return s.load(args.scale, 1); });
        } else {
          const FloatVec scale = hn::Set(d, args.scale[args.of == ScaleOf::kRow ? row : 0]);
          quantize_row(args, row, x, out, [&](Slice) { return scale; });
        }
      }
    });
  });
}

void dequantize(int64_t begin, int64_t end, const Dequantize& args) {
  const FloatTag d;
  with_type(args.dtype, [&](auto number) {
    using T = decltype(number);
    for (int64_t row = begin; row < end; ++row) {
      const auto* product = row_of<T>(args.product, row, args.width);
      auto* out = row_of<T>(args.out, row, args.width);
      const FloatVec by_row = hn::Set(d, args.row_scale[args.by_row ? row : 0]);
      const FloatVec by_all = hn::Set(d, args.column_scale[0]);
      for_slices(args.width, [&](Slice s) {
        const FloatVec by_column = args.by_column ? s.load(args.column_scale) : by_all;
        const FloatVec value = hn::Mul(hn::Mul(s.load(product), by_row), by_column);
        s.store(args.accumulate ? hn::Add(s.load(out), value) : value, out);
      });
    }
  });
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include "trainer_core/ops/cpu/cpu_ops.h"
#include "trainer_core/ops/cpu/value_checks.h"

namespace muster::trainer::cpu {

HWY_EXPORT(abs_max_of);
HWY_EXPORT(abs_max_of_columns);
HWY_EXPORT(quantize);
HWY_EXPORT(dequantize);

namespace {

// Maps amax to the grid's limit with Flax's operations and AQT's: their last bits differ.
// Transformer Engine bounds the reciprocal, so that the smallest values have a scale, too.
float scale_for(NumberGrid grid, float amax) {
  if (grid == NumberGrid::kInt8) return amax / grid_limit(grid);
  return 1 / std::min(grid_limit(grid) / amax, std::numeric_limits<float>::max());
}

bool has_scale(float amax) { return std::isfinite(amax) && amax > 0; }

float larger(float a, uint32_t word) {
  return std::bit_cast<float>(std::max(std::bit_cast<uint32_t>(a), word));
}

}  // namespace

void CpuOps::do_abs_max(const Tensor& x, ScaleOf of, const Tensor& amax, Accumulate accumulate) {
  float* out = amax.f32();
  if (accumulate == Accumulate::kNo) std::fill_n(out, amax.elements(), 0.0F);
  const int64_t width = x.dim(x.rank - 1), rows = rows_of(x);
  const AbsMax args{x.dtype, width, x.data};
  const int useful = useful_threads(threads_, x.elements());
  switch (of) {
    case ScaleOf::kTensor: {
      std::atomic<uint32_t> largest{0};
      parallel_for(useful, x.elements(), [&](int64_t begin, int64_t end, int) {
        const uint32_t mine = HWY_DYNAMIC_DISPATCH(abs_max_of)(begin, end, args);
        uint32_t known = largest;
        while (known < mine && !largest.compare_exchange_weak(known, mine)) {
        }
      });
      out[0] = larger(out[0], largest);
      return;
    }
    case ScaleOf::kRow:
      return parallel_for(useful, rows, [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row)
          out[row] = larger(out[row],
                            HWY_DYNAMIC_DISPATCH(abs_max_of)(row * width, (row + 1) * width, args));
      });
    case ScaleOf::kColumn:
      return parallel_for(useful, width, [&](int64_t begin, int64_t end, int) {
        HWY_DYNAMIC_DISPATCH(abs_max_of_columns)(begin, end, rows, args, out);
      });
  }
}

void CpuOps::do_current_scale(NumberGrid grid, const Tensor& amax, const Tensor& scale) {
  std::transform(amax.f32(), amax.f32() + amax.elements(), scale.f32(), [&](float largest) {
    return scale_for(grid, has_scale(largest)          ? largest
                           : grid == NumberGrid::kInt8 ? 1.0F
                                                       : grid_limit(grid));
  });
}

void CpuOps::do_delayed_scale(const Tensor& amax, const Tensor& history, const Tensor& scale) {
  constexpr int64_t kOperands = 3;
  const int64_t scales = amax.elements();
  const int64_t length = history.elements() / scales;
  for (int64_t i = 0; i < scales; ++i) {
    const NumberGrid grid = i % kOperands == kOperands - 1 ? NumberGrid::kE5m2 : NumberGrid::kE4m3;
    float* const row = history.f32() + i * length;
    std::rotate(row, row + 1, row + length);
    row[0] = amax.f32()[i];
    float largest = 0;
    for (int64_t step = 0; step < length; ++step)
      largest = larger(largest, std::bit_cast<uint32_t>(row[step]));
    if (has_scale(largest)) scale.f32()[i] = scale_for(grid, largest);
  }
}

void CpuOps::do_quantize(NumberGrid grid, const Tensor& x, ScaleOf of, const Tensor& scale,
                         const std::optional<RoundingNoise>& noise, const Tensor& out) {
  const Quantize args{.grid = grid,
                      .width = x.dim(x.rank - 1),
                      .of = of,
                      .scale = scale.f32(),
                      .noise = noise,
                      .from_type = x.dtype,
                      .x = x.float_data(),
                      .to_type = out.dtype,
                      .out = out.float_data()};
  parallel_for(useful_threads(threads_, x.elements()), rows_of(x),
               [&](int64_t begin, int64_t end, int) {
                 HWY_DYNAMIC_DISPATCH(quantize)(begin, end, args);
               });
}

void CpuOps::do_dequantize(const Tensor& product, const Tensor& row_scale,
                           const Tensor& column_scale, const Tensor& out, Accumulate accumulate) {
  const int64_t width = out.dim(out.rank - 1), rows = rows_of(out);
  const bool by_row = row_scale.elements() != 1, by_column = column_scale.elements() != 1;
  const Dequantize args{.width = width,
                        .by_row = by_row,
                        .by_column = by_column,
                        .row_scale = row_scale.f32(),
                        .column_scale = column_scale.f32(),
                        .accumulate = accumulate == Accumulate::kYes,
                        .dtype = product.dtype,
                        .product = product.data,
                        .out = out.data};
  parallel_for(useful_threads(threads_, out.elements()), rows,
               [&](int64_t begin, int64_t end, int) {
                 HWY_DYNAMIC_DISPATCH(dequantize)(begin, end, args);
               });
}

}  // namespace muster::trainer::cpu
#endif
