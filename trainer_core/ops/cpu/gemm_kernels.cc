// The packed GEMM's inner loops: packing, and the register tile that multiplies a panel of a by one
// of b.
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
#include "trainer_core/ops/cpu/slot_product.inc"

HWY_BEFORE_NAMESPACE();
namespace muster::trainer::cpu::HWY_NAMESPACE {

// 12 of 16 registers are accumulators, 24 of 32 with AVX-512: enough multiply-adds in flight to
// hide their latency. Two vectors by many rows need fewer loads per multiply-add than other shapes
// of that size.
constexpr int kPanelVectors = 2;
constexpr int kPanelRows = HWY_TARGET <= HWY_AVX3 ? 12 : 6;

HWY_INLINE int64_t panel_columns() {
  return kPanelVectors * static_cast<int64_t>(hn::Lanes(FloatTag()));
}

#if HWY_TARGET == HWY_AVX3
bool multiplies_pairs() {
  static const bool supported = __builtin_cpu_supports("avx512bf16") != 0;
  return supported;
}
#else
bool multiplies_pairs() { return false; }
#endif

// A prefetch after this many slots: all at once would fill the queue of misses, and the panels' own
// loads wait behind them.
constexpr int64_t kSlotsPerPrefetch = 8;

// Walks through a GemmAhead, line by line.
class LinesAhead {
 public:
  explicit LinesAhead(const GemmAhead& ahead) : ahead_(ahead), row_(ahead.data) {}

  HWY_INLINE void prefetch() {
    if (ahead_.rows == 0) return;
    hwy::Prefetch(row_ + offset_);
    offset_ += kLineBytes;
    if (offset_ < ahead_.row_bytes + kLineBytes - 1)
      return;  // a row may begin and end within a line
    offset_ = 0;
    row_ += ahead_.stride_bytes;
    --ahead_.rows;
  }

 private:
  GemmAhead ahead_;
  const char* row_;
  int64_t offset_ = 0;
};

// The first kRows rows and kVectors vectors of columns of a tile of c. Each panel's b is used for
// all rows of a block before the next one, so it stays in the cache.
template <class Product, int kRows, int kVectors, class C>
HWY_INLINE void multiply_panels(int64_t slots, const float* HWY_RESTRICT a,
                                const float* HWY_RESTRICT b, const float* addend,
                                int64_t addend_stride, C* c, int64_t c_stride, LinesAhead& ahead) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec sums[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      hwy::Prefetch(c + i * c_stride + j * lanes);
      sums[i][j] = hn::Zero(d);
    }
  }
  for (int64_t begin = 0; begin < slots; begin += kSlotsPerPrefetch) {
    const int64_t end = std::min(slots, begin + kSlotsPerPrefetch);
    ahead.prefetch();
    for (int64_t k = begin; k < end; ++k, a += kPanelRows, b += kPanelVectors * lanes) {
      FloatVec row[kVectors];
      for (int j = 0; j < kVectors; ++j) row[j] = hn::Load(d, b + j * lanes);
      for (int i = 0; i < kRows; ++i) {
        const FloatVec factor = hn::Set(d, a[i]);
        for (int j = 0; j < kVectors; ++j) sums[i][j] = Product::add(sums[i][j], factor, row[j]);
      }
    }
  }
  for (int i = 0; i < kRows; ++i, c += c_stride) {
    for (int j = 0; j < kVectors; ++j) {
      const FloatVec sum =
          addend == nullptr
              ? sums[i][j]
              : hn::Add(hn::LoadU(d, addend + i * addend_stride + j * lanes), sums[i][j]);
      store_whole(sum, c + j * lanes);
    }
  }
}

// A tile that sticks out of c: as much of it as c needs, rounded up, in a buffer, then c's part. An
// element's sum has the same bits in every tile.
template <class Product, int kRows, int kVectors, class C>
HWY_INLINE void multiply_edge(int64_t rows, int64_t columns, const GemmBlock& block, const float* a,
                              const float* b, const float* addend, C* c, LinesAhead& ahead) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(FloatTag()));
  HWY_ALIGN float tile[kRows * kVectors * HWY_MAX_BYTES / sizeof(float)];
  multiply_panels<Product, kRows, kVectors>(block.slots, a, b, nullptr, 0, tile, kVectors * lanes,
                                            ahead);
  for (int64_t i = 0; i < rows; ++i) {
    for_slices(columns, [&](Slice s) {
      FloatVec sum = s.load(tile + i * kVectors * lanes);
      if (addend != nullptr) sum = hn::Add(s.load(addend + i * block.addend_stride), sum);
      s.store(sum, c + i * block.c_stride);
    });
  }
}

template <class Product, int kVectors, class C>
HWY_NOINLINE void multiply_edge_rows(int64_t rows, int64_t columns, const GemmBlock& block,
                                     const float* a, const float* b, const float* addend, C* c,
                                     LinesAhead& ahead) {
  constexpr int kStep = kPanelRows / 3;
  if (rows <= kStep) {
    multiply_edge<Product, kStep, kVectors>(rows, columns, block, a, b, addend, c, ahead);
  } else if (rows <= 2 * kStep) {
    multiply_edge<Product, 2 * kStep, kVectors>(rows, columns, block, a, b, addend, c, ahead);
  } else {
    multiply_edge<Product, kPanelRows, kVectors>(rows, columns, block, a, b, addend, c, ahead);
  }
}

template <class Product, class C>
HWY_INLINE void multiply_block(const GemmBlock& block) {
  const int64_t width = panel_columns();
  LinesAhead ahead(block.ahead);
  for (int64_t j = 0; j < block.columns; j += width) {
    const float* b = block.b + j * block.slots;
    const int64_t columns = std::min(width, block.columns - j);
    for (int64_t i = 0; i < block.rows; i += kPanelRows) {
      const float* a = block.a + i * block.slots;
      const float* addend =
          block.addend == nullptr ? nullptr : block.addend + i * block.addend_stride + j;
      C* c = static_cast<C*>(block.c.data) + i * block.c_stride + j;
      const int64_t rows = std::min<int64_t>(kPanelRows, block.rows - i);
      if (rows == kPanelRows && columns == width) {
        multiply_panels<Product, kPanelRows, kPanelVectors>(
            block.slots, a, b, addend, block.addend_stride, c, block.c_stride, ahead);
      } else if (columns <= width / kPanelVectors) {
        multiply_edge_rows<Product, 1>(rows, columns, block, a, b, addend, c, ahead);
      } else {
        multiply_edge_rows<Product, kPanelVectors>(rows, columns, block, a, b, addend, c, ahead);
      }
    }
  }
}

void multiply(const GemmBlock& block) {
  with_type(block.c.dtype, [&](auto type) {
    using C = decltype(type);
#if HWY_TARGET == HWY_AVX3
    if (block.format == GemmFormat::kBf16Pairs)
      return multiply_block<SlotProduct<GemmFormat::kBf16Pairs>, C>(block);
#endif
    multiply_block<SlotProduct<GemmFormat::kF32>, C>(block);
  });
}

int64_t target() { return HWY_TARGET; }
GemmTile tile() { return {kPanelRows, panel_columns()}; }
GemmFormat bf16_format() {
  return multiplies_pairs() ? GemmFormat::kBf16Pairs : GemmFormat::kRoundedF32;
}

void pack_a(GemmFormat format, const GemmOperand& a, int64_t rows, int64_t depth, float* panels) {
  pack_panels<kPanelRows>(format, a, rows, depth, panels);
}
void pack_b(GemmFormat format, const GemmOperand& b, int64_t columns, int64_t depth,
            float* panels) {
  pack_panels<kPanelVectors * hn::MaxLanes(FloatTag())>(format, b, columns, depth, panels);
}

}  // namespace muster::trainer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace muster::trainer::cpu {

HWY_EXPORT(target);
HWY_EXPORT(tile);
HWY_EXPORT(bf16_format);
HWY_EXPORT(pack_a);
HWY_EXPORT(pack_b);
HWY_EXPORT(multiply);

int64_t gemm_target() { return HWY_DYNAMIC_DISPATCH(target)(); }
GemmTile gemm_tile() { return HWY_DYNAMIC_DISPATCH(tile)(); }
GemmFormat gemm_bf16_format() { return HWY_DYNAMIC_DISPATCH(bf16_format)(); }
void gemm_pack_a(GemmFormat format, const GemmOperand& a, int64_t rows, int64_t depth,
                 float* panels) {
  HWY_DYNAMIC_DISPATCH(pack_a)(format, a, rows, depth, panels);
}
void gemm_pack_b(GemmFormat format, const GemmOperand& b, int64_t columns, int64_t depth,
                 float* panels) {
  HWY_DYNAMIC_DISPATCH(pack_b)(format, b, columns, depth, panels);
}
void gemm_multiply(const GemmBlock& block) { HWY_DYNAMIC_DISPATCH(multiply)(block); }

}  // namespace muster::trainer::cpu
#endif
