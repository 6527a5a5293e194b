// Products of few rows, as in decoding: b is read once and used at once, so it is not packed. Each
// element is summed in one order, whatever range of columns it is computed with. bf16 operands are
// widened on the way: reading b takes longer.
#include <algorithm>
#include <cstdint>

#include <hwy/cache_control.h>

#include "trainer_core/ops/cpu/gemm_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/gemm_few_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trainer_core/ops/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

// Columns whose b stays cached while all groups of rows use it; a multiple of every group's
// columns.
constexpr int64_t kDotColumns = 24;

// kRows x kColumns dot products of rows of a with rows of b, both `depth` long and contiguous.
template <int kRows, int kColumns, class T, class C>
HWY_INLINE void dot_tile(int64_t depth, const T* a, const T* b, C* c, int64_t c_stride,
                         bool accumulate) {
  const FloatTag d;
  FloatVec sums[kRows][kColumns];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) sums[i][j] = hn::Zero(d);
  }
  for_slices(depth, [&](Slice s) {
    FloatVec column[kColumns];
    for (int j = 0; j < kColumns; ++j) {
      column[j] = s.load(b + j * depth);
      hwy::Prefetch(b + (kColumns + j) * depth + s.begin);  // a column of the next tile
    }
    for (int i = 0; i < kRows; ++i) {
      const FloatVec row = s.load(a + i * depth);
      for (int j = 0; j < kColumns; ++j) sums[i][j] = hn::MulAdd(row, column[j], sums[i][j]);
    }
  });
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      C& to = c[i * c_stride + j];
      to = from_float<C>(reduce_sum(sums[i][j]) + (accumulate ? to_float(to) : 0.0F));
    }
  }
}

template <int kRows, int kColumns, class T, class C>
HWY_INLINE void dot_rows(const MatmulShape& shape, const T* a, const T* b, C* c, int64_t columns) {
  int64_t j = 0;
  for (; j + kColumns <= columns; j += kColumns) {
    dot_tile<kRows, kColumns>(shape.k, a, b + j * shape.k, c + j, shape.n, shape.accumulate);
  }
  for (; j < columns; ++j) {
    dot_tile<kRows, 1>(shape.k, a, b + j * shape.k, c + j, shape.n, shape.accumulate);
  }
}

// b is (n, k): dot products of rows.
template <class T, class C>
HWY_INLINE void dot_products(const MatmulShape& shape, const T* a, const T* b, C* c, int64_t begin,
                             int64_t end) {
  for (int64_t j = begin; j < end; j += kDotColumns) {
    const int64_t columns = std::min(kDotColumns, end - j);
    int64_t i = 0;
    const auto group = [&]<int kRows, int kColumns>() {
      for (; i + kRows <= shape.m; i += kRows) {
        dot_rows<kRows, kColumns>(shape, a + i * shape.k, b + j * shape.k, c + i * shape.n + j,
                                  columns);
      }
    };
    group.template operator()<4, 3>();
    group.template operator()<2, 4>();
    group.template operator()<1, 8>();
  }
}

// Adds multiples of kDepth rows of b to every row of c.
template <int kDepth>
HWY_INLINE void add_multiples(const MatmulShape& shape, const float* a, const float* b, float* c,
                              int64_t columns) {
  const int64_t row_stride = shape.transpose_a ? 1 : shape.k;
  const int64_t depth_stride = shape.transpose_a ? shape.m : 1;
  for_slices(columns, [&](Slice s) {
    FloatVec rows[kDepth];
    for (int k = 0; k < kDepth; ++k) rows[k] = s.load(b + k * shape.n);
    for (int64_t i = 0; i < shape.m; ++i) {
      FloatVec sum = s.load(c + i * shape.n);
      for (int k = 0; k < kDepth; ++k) {
        const FloatVec factor = hn::Set(FloatTag(), a[i * row_stride + k * depth_stride]);
        sum = hn::MulAdd(factor, rows[k], sum);
      }
      s.store(sum, c + i * shape.n);
    }
  });
}

// b is (k, n): combines its rows, group by group, in strips of columns whose c stays in the L1
// cache.
HWY_INLINE void row_combinations(const MatmulShape& shape, const float* a, const float* b, float* c,
                                 int64_t begin, int64_t end) {
  constexpr int64_t kStripElements = 4096;
  constexpr int kDepth = 8;
  const int64_t strip = std::max<int64_t>(1, kStripElements / shape.m);
  const int64_t depth_stride = shape.transpose_a ? shape.m : 1;
  for (int64_t j = begin; j < end; j += strip) {
    const int64_t columns = std::min(strip, end - j);
    if (!shape.accumulate) {
      for (int64_t i = 0; i < shape.m; ++i) std::fill_n(c + i * shape.n + j, columns, 0.0F);
    }
    int64_t k = 0;
    for (; k + kDepth <= shape.k; k += kDepth) {
      add_multiples<kDepth>(shape, a + k * depth_stride, b + k * shape.n + j, c + j, columns);
    }
    for (; k < shape.k; ++k) {
      add_multiples<1>(shape, a + k * depth_stride, b + k * shape.n + j, c + j, columns);
    }
  }
}

void few_rows(const MatmulShape& shape, MatrixIn a, MatrixIn b, MatrixOut c, int64_t begin,
              int64_t end) {
  if (a.is_bf16()) {
    with_type(c.dtype, [&](auto number) {
      dot_products(shape, static_cast<const Bf16*>(a.data), static_cast<const Bf16*>(b.data),
                   static_cast<decltype(number)*>(c.data), begin, end);
    });
    return;
  }
  const auto* left = static_cast<const float*>(a.data);
  const auto* right = static_cast<const float*>(b.data);
  auto* to = static_cast<float*>(c.data);
  if (shape.transpose_b) {
    dot_products(shape, left, right, to, begin, end);
  } else {
    row_combinations(shape, left, right, to, begin, end);
  }
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::trainer::cpu {

HWY_EXPORT(few_rows);

void gemm_few_rows(const MatmulShape& shape, MatrixIn a, MatrixIn b, MatrixOut c, int64_t begin,
                   int64_t end) {
  HWY_DYNAMIC_DISPATCH(few_rows)(shape, a, b, c, begin, end);
}

}  // namespace muster::trainer::cpu
#endif
