// RMSNorm and LayerNorm, forward (with the residual addition) and backward.
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

// x + delta into sum, when there is a delta; returns the row that is to be normed. Remat relies on
// one thing here: the norm of a stored sum has the bits of the norm made while summing.
template <class T>
HWY_INLINE const T* residual_row(int64_t row, const NormForward& args) {
  const T* x = row_of<T>(args.x, row, args.width);
  if (args.delta == nullptr) return x;
  const T* delta = row_of<T>(args.delta, row, args.width);
  T* sum = row_of<T>(args.sum, row, args.width);
  for_slices(args.width, [&](Slice s) { s.store(hn::Add(s.load(x), s.load(delta)), sum); });
  return sum;
}

// Returns the mean of term(x) over the row; a missing element of the last slice reads as `missing`,
// whose term is 0.
template <class T, class Term>
HWY_INLINE float mean_of(int64_t width, const T* x, float missing, const Term& term) {
  FloatVec total = hn::Zero(FloatTag());
  for_slices(width, [&](Slice s) { total = term(s.load(x, missing), total); });
  return reduce_sum(total) / static_cast<float>(width);
}

template <class T>
void rms_forward(int64_t begin, int64_t end, const NormForward& args) {
  const FloatTag d;
  const FloatVec offset = hn::Set(d, args.gain_offset);
  for (int64_t row = begin; row < end; ++row) {
    const T* x = residual_row<T>(row, args);
    const float square = mean_of(
        args.width, x, 0, [](FloatVec v, FloatVec total) { return hn::MulAdd(v, v, total); });
    const float rstd = 1.0F / std::sqrt(square + args.eps);
    args.stats[row] = rstd;
    const FloatVec factor = hn::Set(d, rstd);
    T* y = row_of<T>(args.y, row, args.width);
    for_slices(args.width, [&](Slice s) {
      s.store(hn::Mul(hn::Mul(s.load(x), factor), hn::Add(s.load(args.gain), offset)), y);
    });
  }
}

template <class T>
void layer_norm_forward(int64_t begin, int64_t end, const NormForward& args) {
  const FloatTag d;
  const FloatVec offset = hn::Set(d, args.gain_offset);
  for (int64_t row = begin; row < end; ++row) {
    const T* x = residual_row<T>(row, args);
    const float mean =
        mean_of(args.width, x, 0, [](FloatVec v, FloatVec total) { return hn::Add(v, total); });
    const FloatVec center = hn::Set(d, mean);
    const float variance = mean_of(args.width, x, mean, [&](FloatVec v, FloatVec total) {
      const FloatVec away = hn::Sub(v, center);
      return hn::MulAdd(away, away, total);
    });
    const float rstd = 1.0F / std::sqrt(variance + args.eps);
    args.stats[row] = rstd;
    args.stats[args.rows + row] = mean;
    const FloatVec factor = hn::Set(d, rstd);
    T* y = row_of<T>(args.y, row, args.width);
    for_slices(args.width, [&](Slice s) {
      const FloatVec n = hn::Mul(hn::Sub(s.load(x), center), factor);
      s.store(hn::MulAdd(n, hn::Add(s.load(args.gain), offset), s.load(args.bias)), y);
    });
  }
}

template <class T>
void rms_backward(int64_t begin, int64_t end, const NormBackward& args, float* dgain,
                  float* /*dbias*/) {
  const FloatTag d;
  const FloatVec offset = hn::Set(d, args.gain_offset);
  for (int64_t row = begin; row < end; ++row) {
    const T* dy = row_of<T>(args.dy, row, args.width);
    const T* x = row_of<T>(args.x, row, args.width);
    T* dx = row_of<T>(args.dx, row, args.width);
    const float rstd = args.stats[row];
    const FloatVec factor = hn::Set(d, rstd);
    FloatVec dot = hn::Zero(d);  // g · x
    for_slices(args.width, [&](Slice s) {
      const FloatVec g = s.load(dy);
      const FloatVec v = s.load(x);
      dot = hn::MulAdd(hn::Mul(g, hn::Add(s.load(args.gain), offset)), v, dot);
      s.store(hn::MulAdd(g, hn::Mul(v, factor), s.load(dgain)), dgain);
    });
    const float mean = reduce_sum(dot) / static_cast<float>(args.width);
    const FloatVec along_x = hn::Set(d, rstd * rstd * mean);
    for_slices(args.width, [&](Slice s) {
      const FloatVec g = hn::Mul(s.load(dy), hn::Add(s.load(args.gain), offset));
      const FloatVec inner = hn::NegMulAdd(s.load(x), along_x, g);
      s.store(hn::MulAdd(inner, factor, s.load(dx)), dx);
    });
  }
}

template <class T>
void layer_norm_backward(int64_t begin, int64_t end, const NormBackward& args, float* dgain,
                         float* dbias) {
  const FloatTag d;
  const FloatVec offset = hn::Set(d, args.gain_offset);
  const auto width = static_cast<float>(args.width);
  for (int64_t row = begin; row < end; ++row) {
    const T* dy = row_of<T>(args.dy, row, args.width);
    const T* x = row_of<T>(args.x, row, args.width);
    T* dx = row_of<T>(args.dx, row, args.width);
    const FloatVec factor = hn::Set(d, args.stats[row]);
    const FloatVec center = hn::Set(d, args.stats[args.rows + row]);
    FloatVec total = hn::Zero(d);  // sum of g
    FloatVec dot = hn::Zero(d);    // g · n
    for_slices(args.width, [&](Slice s) {
      const FloatVec from = s.load(dy);
      const FloatVec n = hn::Mul(hn::Sub(s.load(x), center), factor);
      const FloatVec g = hn::Mul(from, hn::Add(s.load(args.gain), offset));
      total = hn::Add(total, g);
      dot = hn::MulAdd(g, n, dot);
      s.store(hn::MulAdd(from, n, s.load(dgain)), dgain);
      s.store(hn::Add(from, s.load(dbias)), dbias);
    });
    const FloatVec mean = hn::Set(d, reduce_sum(total) / width);
    const FloatVec along_n = hn::Set(d, reduce_sum(dot) / width);
    for_slices(args.width, [&](Slice s) {
      const FloatVec n = hn::Mul(hn::Sub(s.load(x), center), factor);
      const FloatVec g = hn::Mul(s.load(dy), hn::Add(s.load(args.gain), offset));
      const FloatVec inner = hn::NegMulAdd(n, along_n, hn::Sub(g, mean));
      s.store(hn::MulAdd(inner, factor, s.load(dx)), dx);
    });
  }
}

void forward(int64_t begin, int64_t end, const NormForward& args) {
  with_type(args.dtype, [&](auto type) {
    using T = decltype(type);
    if (args.type == NormType::kLayer) {
      layer_norm_forward<T>(begin, end, args);
    } else {
      rms_forward<T>(begin, end, args);
    }
  });
}

void backward(int64_t begin, int64_t end, const NormBackward& args, float* dgain, float* dbias) {
  with_type(args.dtype, [&](auto type) {
    using T = decltype(type);
    if (args.type == NormType::kLayer) {
      layer_norm_backward<T>(begin, end, args, dgain, dbias);
    } else {
      rms_backward<T>(begin, end, args, dgain, dbias);
    }
  });
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "trainer_core/ops/cpu/cpu_ops.h"
#include "trainer_core/ops/cpu/sums.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer::cpu {

HWY_EXPORT(forward);
HWY_EXPORT(backward);

namespace {

NormForward forward_args(const NormShape& shape, const Tensor& x, const NormWeights& weights,
                         const Tensor& y, const Tensor& stats) {
  const int64_t width = weights.gain.elements();
  const bool layer = shape.type == NormType::kLayer;
  return {.dtype = x.dtype,
          .type = shape.type,
          .rows = x.elements() / width,
          .width = width,
          .eps = static_cast<float>(shape.eps),
          .gain_offset = static_cast<float>(shape.gain_offset),
          .x = x.data,
          .delta = nullptr,
          .gain = weights.gain.f32(),
          .bias = layer ? weights.bias.f32() : nullptr,
          .sum = nullptr,
          .y = y.data,
          .stats = stats.f32()};
}

}  // namespace

void CpuOps::do_norm(const NormShape& shape, const Tensor& x, const NormWeights& weights,
                     const Tensor& y, const Tensor& stats) {
  const NormForward args = forward_args(shape, x, weights, y, stats);
  split(args.rows, x.elements(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(forward)(begin, end, args);
  });
}

void CpuOps::do_add_norm(const NormShape& shape, const Tensor& x, const Tensor& delta,
                         const NormWeights& weights, const Tensor& sum, const Tensor& y,
                         const Tensor& stats) {
  NormForward args = forward_args(shape, x, weights, y, stats);
  args.delta = delta.data;
  args.sum = sum.data;
  split(args.rows, x.elements(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(forward)(begin, end, args);
  });
}

void CpuOps::do_norm_backward(const NormShape& shape, const Tensor& dy, const Tensor& x,
                              const NormWeights& weights, const Tensor& stats, const Tensor& dx,
                              const NormWeights& d_weights, Accumulate accumulate,
                              Workspace workspace) {
  const int64_t width = weights.gain.elements(), rows = x.elements() / width;
  const int64_t blocks = std::min(kRowSumBlocks, rows);
  const NormBackward args{x.dtype,
                          shape.type,
                          rows,
                          width,
                          static_cast<float>(shape.gain_offset),
                          dy.data,
                          x.data,
                          weights.gain.f32(),
                          stats.f32(),
                          dx.data};
  // A block's partial sums: gain, then bias.
  split(blocks, x.elements(), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      float* partial = workspace.data + 2 * block * width;
      std::fill_n(partial, 2 * width, 0.0F);
      HWY_DYNAMIC_DISPATCH(backward)
      (rows * block / blocks, rows * (block + 1) / blocks, args, partial, partial + width);
    }
  });
  if (d_weights.gain.data == nullptr) return;
  float* sums = workspace.data;
  add_blocks(sums, blocks, 2 * width, width, accumulate, d_weights.gain.f32());
  if (shape.type == NormType::kLayer)
    add_blocks(sums + width, blocks, 2 * width, width, accumulate, d_weights.bias.f32());
}

}  // namespace muster::trainer::cpu
#endif
