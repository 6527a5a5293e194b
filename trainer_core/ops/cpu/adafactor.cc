// Adafactor: running means of squared gradients, of every element or of rows and columns alone.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/adafactor.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

// Columns per pass over the rows, and rows whose fp32 sum is added to the fp64 one: the sums stay
// in the L1 cache, and their error is that of a short sum.
constexpr int64_t kColumns = 256;
constexpr int64_t kRowsPerSum = 32;

HWY_INLINE FloatVec set(double value) { return hn::Set(FloatTag(), static_cast<float>(value)); }

void adafactor(int64_t n, const AdafactorStep& step, float* grads, float* v) {
  const FloatVec scale = set(step.grad_scale), eps = set(step.eps);
  const FloatVec decay = set(step.decay), rest = set(1 - step.decay);
  for_slices(n, [&](Slice s) {
    const FloatVec g = hn::Mul(s.load(grads), scale);
    const FloatVec v_new = hn::MulAdd(decay, s.load(v), hn::Mul(rest, hn::MulAdd(g, g, eps)));
    s.store(v_new, v);
    // A part of a vector reads 0 beyond its end: eps keeps 0 / 0 away.
    s.store(hn::Div(g, hn::Sqrt(v_new)), grads);
  });
}

// sums (count) += squares of columns [first, first + count) of rows [begin, end).
void add_squares(int64_t first, int64_t count, int64_t begin, int64_t end, const Squares& args,
                 double* sums) {
  HWY_ALIGN float partial[kColumns] = {};
  for (int64_t row = begin; row < end; ++row) {
    const float* x = args.x + row * args.width + first;
    for_slices(count, [&](Slice s) {
      const FloatVec g = s.load(x);
      s.store(hn::MulAdd(g, g, s.load(partial)), partial);
    });
  }
  for (int64_t i = 0; i < count; ++i) sums[i] += static_cast<double>(partial[i]);
}

void column_squares(int64_t begin, int64_t end, const Squares& args) {
  for (int64_t first = begin; first < end; first += kColumns) {
    const int64_t count = std::min(kColumns, end - first);
    for (int64_t row = 0; row < args.rows; row += kRowsPerSum)
      add_squares(first, count, row, std::min(row + kRowsPerSum, args.rows), args,
                  args.column_sums + first);
  }
}

void columns_of(const AdafactorStep& step, int64_t rows, std::span<const double> sums,
                float* means) {
  const double scale = step.grad_scale * step.grad_scale / static_cast<double>(rows);
  for (size_t i = 0; i < sums.size(); ++i) {
    float& mean = means[i];
    const double square = sums[i] * scale + step.eps;
    mean = static_cast<float>(step.decay * static_cast<double>(mean) + (1 - step.decay) * square);
  }
}

void direction_rows(int64_t begin, int64_t end, const FactoredDirection& args) {
  for (int64_t row = begin; row < end; ++row) {
    const double row_factor = std::sqrt(args.mean / static_cast<double>(args.row_means[row]));
    const FloatVec factor = set(args.step.grad_scale * row_factor);
    float* grads = args.grads + row * args.width;
    for_slices(args.width, [&](Slice s) {
      const FloatVec column = hn::Sqrt(s.load(args.column_means, 1));
      s.store(hn::Div(hn::Mul(s.load(grads), factor), column), grads);
    });
  }
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "trainer_core/ops/cpu/cpu_ops.h"

namespace muster::trainer::cpu {

HWY_EXPORT(adafactor);
HWY_EXPORT(column_squares);
HWY_EXPORT(columns_of);
HWY_EXPORT(direction_rows);

namespace {

// Updates the means of rows from sums of `count` squares each.
void update_row_means(const AdafactorStep& step, int64_t count, std::span<const double> sums,
                      float* means) {
  const double scale = step.grad_scale * step.grad_scale / static_cast<double>(count);
  for (size_t i = 0; i < sums.size(); ++i) {
    const double square = sums[i] * scale + step.eps;
    means[i] =
        static_cast<float>(step.decay * static_cast<double>(means[i]) + (1 - step.decay) * square);
  }
}

}  // namespace

void CpuOps::do_adafactor_direction(const AdafactorStep& step, const Tensor& grads,
                                    const Tensor& v) {
  elementwise(grads, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(adafactor)(end - begin, step, grads.f32() + begin, v.f32() + begin);
  });
}

void CpuOps::do_add_squares(const Tensor& x, std::span<double> rows, std::span<double> columns) {
  const Squares args{.rows = x.dim(0),
                     .width = x.dim(1),
                     .x = x.f32(),
                     .row_sums = rows.data(),
                     .column_sums = columns.data()};
  split(args.rows, x.elements(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      args.row_sums[row] += sum_of_squares_range(args.width, args.x + row * args.width);
  });
  split(args.width, x.elements(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(column_squares)(begin, end, args);
  });
}

void CpuOps::do_adafactor_factors(const AdafactorStep& step, std::span<const double> row_sums,
                                  std::span<const double> column_sums, const Tensor& rows,
                                  const Tensor& columns) {
  update_row_means(step, columns.elements(), row_sums, rows.f32());
  HWY_DYNAMIC_DISPATCH(columns_of)(step, rows.elements(), column_sums, columns.f32());
}

void CpuOps::do_adafactor_factored_direction(const AdafactorStep& step, const Tensor& grads,
                                             const Tensor& rows, int64_t first_row,
                                             const Tensor& columns, int64_t first_column) {
  const FactoredDirection args{
      .width = grads.dim(1),
      .step = step,
      .mean = sum_range(rows.elements(), rows.f32()) / static_cast<double>(rows.elements()),
      .grads = grads.f32(),
      .row_means = rows.f32() + first_row,
      .column_means = columns.f32() + first_column};
  split(grads.dim(0), grads.elements(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(direction_rows)(begin, end, args);
  });
}

}  // namespace muster::trainer::cpu
#endif
