// The packed product's inner loops: packing, and the register tile that multiplies a panel of a by one of b.
#include "trainer_core/ops/cpu/gemm_kernels.h"

#include <algorithm>
#include <cstdint>

#include <hwy/cache_control.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trainer_core/ops/cpu/gemm_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trainer_core/ops/cpu/gemm_pack.inc"
#include "trainer_core/ops/cpu/simd.inc"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

// 12 of 16 registers are accumulators, 24 of 32 with AVX-512: enough multiply-adds in flight to hide their latency.
// Two vectors by many rows need fewer loads per multiply-add than other shapes of that size.
constexpr int kPanelVectors = 2;
constexpr int kPanelRows = HWY_TARGET <= HWY_AVX3 ? 12 : 6;

HWY_INLINE int64_t panel_columns() {
  return kPanelVectors * static_cast<int64_t>(hn::Lanes(FloatTag()));
}

// The first kRows rows and kVectors vectors of columns of a tile. Each panel's b is used for all rows of a block before the
// next one, so it stays in the cache.
template <int kRows, int kVectors>
HWY_INLINE void multiply_panels(int64_t depth, const float* HWY_RESTRICT a,
                                const float* HWY_RESTRICT b, float* HWY_RESTRICT c,
                                int64_t c_stride, bool accumulate) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec sums[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      hwy::Prefetch(c + i * c_stride + j * lanes);
      sums[i][j] = hn::Zero(d);
    }
  }
  for (int64_t k = 0; k < depth; ++k, a += kPanelRows, b += kPanelVectors * lanes) {
    FloatVec row[kVectors];
    for (int j = 0; j < kVectors; ++j) row[j] = hn::Load(d, b + j * lanes);
    for (int i = 0; i < kRows; ++i) {
      const FloatVec factor = hn::Set(d, a[i]);
      for (int j = 0; j < kVectors; ++j) sums[i][j] = hn::MulAdd(factor, row[j], sums[i][j]);
    }
  }
  for (int i = 0; i < kRows; ++i, c += c_stride) {
    for (int j = 0; j < kVectors; ++j) {
      float* to = c + j * lanes;
      hn::StoreU(accumulate ? hn::Add(hn::LoadU(d, to), sums[i][j]) : sums[i][j], d, to);
    }
  }
}

// A tile that sticks out of c: as much of it as c needs, rounded up, in a buffer, then c's part. An element's sum has the
// same bits in every tile.
template <int kRows, int kVectors>
HWY_INLINE void multiply_edge(int64_t rows, int64_t columns, int64_t depth, const float* a,
                              const float* b, float* c, int64_t c_stride, bool accumulate) {
  const int64_t width = kVectors * static_cast<int64_t>(hn::Lanes(FloatTag()));
  HWY_ALIGN float tile[kRows * kVectors * HWY_MAX_BYTES / sizeof(float)];
  multiply_panels<kRows, kVectors>(depth, a, b, tile, width, false);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const float sum = tile[i * width + j];
      c[i * c_stride + j] = accumulate ? c[i * c_stride + j] + sum : sum;
    }
  }
}

template <int kVectors>
HWY_NOINLINE void multiply_edge_rows(int64_t rows, int64_t columns, int64_t depth, const float* a,
                                     const float* b, float* c, int64_t c_stride, bool accumulate) {
  constexpr int kStep = kPanelRows / 3;
  if (rows <= kStep)
    return multiply_edge<kStep, kVectors>(rows, columns, depth, a, b, c, c_stride, accumulate);
  if (rows <= 2 * kStep)
    return multiply_edge<2 * kStep, kVectors>(rows, columns, depth, a, b, c, c_stride, accumulate);
  multiply_edge<kPanelRows, kVectors>(rows, columns, depth, a, b, c, c_stride, accumulate);
}

void multiply(const GemmBlock& block) {
  const int64_t width = panel_columns();
  for (int64_t j = 0; j < block.columns; j += width) {
    const float* b = block.b + j * block.depth;
    const int64_t columns = std::min(width, block.columns - j);
    for (int64_t i = 0; i < block.rows; i += kPanelRows) {
      const float* a = block.a + i * block.depth;
      float* c = block.c + i * block.c_stride + j;
      const int64_t rows = std::min<int64_t>(kPanelRows, block.rows - i);
      if (rows == kPanelRows && columns == width) {
        multiply_panels<kPanelRows, kPanelVectors>(block.depth, a, b, c, block.c_stride,
                                                   block.accumulate);
      } else if (columns <= width / kPanelVectors) {
        multiply_edge_rows<1>(rows, columns, block.depth, a, b, c, block.c_stride,
                              block.accumulate);
      } else {
        multiply_edge_rows<kPanelVectors>(rows, columns, block.depth, a, b, c, block.c_stride,
                                          block.accumulate);
      }
    }
  }
}

int64_t target() { return HWY_TARGET; }
GemmTile tile() { return {kPanelRows, panel_columns()}; }

void pack_a(const GemmOperand& a, int64_t rows, int64_t depth, float* panels) {
  pack_panels(a, rows, depth, kPanelRows, panels);
}
void pack_b(const GemmOperand& b, int64_t columns, int64_t depth, float* panels) {
  pack_panels(b, columns, depth, panel_columns(), panels);
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::trainer::cpu {

HWY_EXPORT(target);
HWY_EXPORT(tile);
HWY_EXPORT(pack_a);
HWY_EXPORT(pack_b);
HWY_EXPORT(multiply);

int64_t gemm_target() { return HWY_DYNAMIC_DISPATCH(target)(); }
GemmTile gemm_tile() { return HWY_DYNAMIC_DISPATCH(tile)(); }
void gemm_pack_a(const GemmOperand& a, int64_t rows, int64_t depth, float* panels) {
  HWY_DYNAMIC_DISPATCH(pack_a)(a, rows, depth, panels);
}
void gemm_pack_b(const GemmOperand& b, int64_t columns, int64_t depth, float* panels) {
  HWY_DYNAMIC_DISPATCH(pack_b)(b, columns, depth, panels);
}
void gemm_multiply(const GemmBlock& block) { HWY_DYNAMIC_DISPATCH(multiply)(block); }

}  // namespace muster::trainer::cpu
#endif
