#include "trainer_core/ops/cpu/gemm.h"

#include <algorithm>
#include <cstring>

#include "trainer_core/base/check.h"
#include "trainer_core/ops/cpu/gemm_kernels.h"
#include "trainer_core/ops/cpu/parallel.h"

namespace muster::trainer::cpu {
namespace {

// Sizes of the packed blocks: rows, columns, and 32-bit slots of the depth (GemmFormat); measured
// on AMD Zen 3, where half or twice of one costs up to 3%, and on Zen 5, where it makes no
// difference. Deep enough that adding sums to c costs little; a panel of b just fits into the L1
// cache with AVX2, and is streamed from the L2 cache with AVX-512.
constexpr int64_t kSlots = 512;
// Rows of a's block: with kSlots 192 KiB, in the L2 cache beside the streamed data.
constexpr int64_t kRows = 96;
// Columns of b's block: with kSlots 2 MiB, in the L3 cache.
constexpr int64_t kColumns = 1024;

// Panels of b use two buffers alternately, so that threads meet once per block: a slow one may
// still read the block before while others pack the next.
constexpr int64_t kBufferElements = kColumns * kSlots;

// A bf16 result cannot hold partial sums: if the depth takes several blocks, the sums are in a
// buffer of this many fp32 elements (4 MiB), for as many rows at a time as fit. b is packed again
// for each such group: with kColumns columns a group has 960 rows, for which packing is 3% of the
// work.
constexpr int64_t kSumElements = 1 << 20;

// Up to this many rows, each element of b is used too seldom to pay for packing it.
constexpr int64_t kFewRows = 8;

// A thread is not worth waking for less: some 5 microseconds of work.
constexpr int64_t kMultiplyAddsPerThreadMin = 1 << 18;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

using Range = Gemm::Range;

MatrixOut at(MatrixOut matrix, int64_t elements) {
  const auto bytes = elements * static_cast<int64_t>(dtype_bytes(matrix.dtype));
  return {static_cast<char*>(matrix.data) + bytes, matrix.dtype};
}

// Part `index` of `count` nearly equal ones of [0, total), cut at multiples of `unit`.
Range part_of(int64_t total, int64_t unit, int64_t index, int64_t count) {
  MUSTER_CHECK(count >= 1 && index < count) << "part " << index << " of " << count;
  const int64_t units = ceil_div(total, unit);
  return {std::min(total, units * index / count * unit),
          std::min(total, units * (index + 1) / count * unit)};
}

// Calls body(range) for nearly equal consecutive ranges of [0, total), none longer than `most`, a
// multiple of `unit`.
template <class Body>
void for_ranges(int64_t total, int64_t unit, int64_t most, const Body& body) {
  const int64_t count = ceil_div(total, most);
  for (int64_t i = 0; i < count; ++i) body(part_of(total, unit, i, count));
}

// `x` rows by `depth` of an operand, as packing will read them.
GemmAhead ahead(const GemmOperand& operand, int64_t x, int64_t depth) {
  const auto bytes = static_cast<int64_t>(dtype_bytes(operand.matrix.dtype));
  return {.data = static_cast<const char*>(operand.matrix.data),
          .rows = operand.along_depth ? x : depth,
          .row_bytes = (operand.along_depth ? depth : x) * bytes,
          .stride_bytes = operand.stride * bytes};
}

// How the threads share a block of c: a thread has one of `rows` parts of its rows by one of
// `columns` of its columns.
struct Grid {
  int64_t rows, columns;
};

// Returns the grid that minimises the work of its largest part. Threads in one row of the grid all
// pack the same part of a, which costs as much as multiplying a few columns.
Grid share_among(int64_t threads, int64_t row_panels, int64_t column_panels, GemmTile tile) {
  constexpr int64_t kPackingInColumns = 8;
  Grid best{threads, 1};
  int64_t least = INT64_MAX;
  for (int64_t rows = threads; rows >= 1; --rows) {
    if (threads % rows != 0) continue;
    const int64_t columns = threads / rows;
    const int64_t work = ceil_div(row_panels, rows) *
                         (ceil_div(column_panels, columns) * tile.columns + kPackingInColumns);
    if (work < least) {
      least = work;
      best = {rows, columns};
    }
  }
  return best;
}

}  // namespace

// A block of columns and depth, with all rows of a group.
struct Gemm::Block {
  GemmFormat format;
  GemmOperand a;  // rows by depth
  GemmOperand b;  // columns by depth
  int64_t rows, columns, depth;
  const float* addend;  // null: none
  int64_t addend_stride;
  MatrixOut c;
  int64_t c_stride;
  float* b_panels;     // in one of the two buffers
  GemmOperand next_a;  // operand of the next block, which has nearly the same sizes

  int64_t slots() const { return gemm_slots(format, depth); }
};

Gemm::Gemm(int threads)
    : threads_(threads),
      a_panels_(hwy::AllocateAligned<float>(static_cast<size_t>(threads * kRows * kSlots))),
      b_panels_(hwy::AllocateAligned<float>(static_cast<size_t>(2 * kBufferElements))) {
  MUSTER_CHECK(a_panels_ != nullptr && b_panels_ != nullptr) << "no memory for matrix panels";
  const GemmTile tile = gemm_tile();
  MUSTER_CHECK(kRows % tile.rows == 0 && kColumns % tile.columns == 0)
      << "blocks of " << kRows << " by " << kColumns << " are no whole panels";
}

void Gemm::pack_b(const Block& block, int part, int parts) {
  const Range columns = part_of(block.columns, gemm_tile().columns, part, parts);
  gemm_pack_b(block.format, block.b.at(columns.begin, 0), columns.size(), block.depth,
              block.b_panels + columns.begin * block.slots());
}

void Gemm::multiply(const Block& block, int part, int parts) {
  const GemmTile tile = gemm_tile();
  const Grid grid = share_among(parts, ceil_div(block.rows, tile.rows),
                                ceil_div(block.columns, tile.columns), tile);
  const Range rows = part_of(block.rows, tile.rows, part / grid.columns, grid.rows);
  const Range columns = part_of(block.columns, tile.columns, part % grid.columns, grid.columns);
  if (columns.size() == 0) return;
  float* a_panels = a_panels_.get() + part * kRows * kSlots;
  const float* b_panels = block.b_panels + columns.begin * block.slots();
  const int64_t count = ceil_div(rows.size(), kRows);
  for (int64_t i = 0; i < count; ++i) {
    const Range range = part_of(rows.size(), tile.rows, i, count);
    const int64_t first = rows.begin + range.begin;
    gemm_pack_a(block.format, block.a.at(first, 0), range.size(), block.depth, a_panels);
    const GemmOperand next =
        i + 1 < count ? block.a.at(first + range.size(), 0) : block.next_a.at(rows.begin, 0);
    const float* addend = block.addend;
    if (addend != nullptr) addend += first * block.addend_stride + columns.begin;
    gemm_multiply({.format = block.format,
                   .rows = range.size(),
                   .columns = columns.size(),
                   .slots = block.slots(),
                   .a = a_panels,
                   .b = b_panels,
                   .addend = addend,
                   .addend_stride = block.addend_stride,
                   .c = at(block.c, first * block.c_stride + columns.begin),
                   .c_stride = block.c_stride,
                   .ahead = ahead(next, range.size(), block.depth)});
  }
}

// One group of rows: rows [first, first + rows) of a and c.
void Gemm::run_rows(const MatmulShape& s, const Operands& operands, Range group, int part,
                    int parts, int64_t& buffer) {
  const GemmFormat format = operands.format;
  const GemmOperand a{operands.a, s.transpose_a ? s.m : s.k, !s.transpose_a};
  const GemmOperand b{operands.b, s.transpose_b ? s.k : s.n, s.transpose_b};
  for_ranges(s.n, gemm_tile().columns, kColumns, [&](Range column) {
    const MatrixOut c = at(operands.c, group.begin * s.n + column.begin);
    for_ranges(s.k, gemm_slot_depth(format), kSlots * gemm_slot_depth(format), [&](Range depth) {
      Block block{.format = format,
                  .a = a.at(group.begin, depth.begin),
                  .b = b.at(column.begin, depth.begin),
                  .rows = group.size(),
                  .columns = column.size(),
                  .depth = depth.size(),
                  .addend = nullptr,
                  .addend_stride = s.n,
                  .c = c,
                  .c_stride = s.n,
                  .b_panels = b_panels_.get() + buffer * kBufferElements,
                  .next_a = a.at(group.begin, depth.end < s.k ? depth.end : 0)};
      if (!c.is_bf16()) {
        if (s.accumulate || depth.begin > 0) block.addend = static_cast<const float*>(c.data);
      } else {
        if (depth.begin > 0) block.addend = sums_.get();
        block.addend_stride = column.size();
        if (depth.end < s.k) {
          block.c = sums_.get();
          block.c_stride = column.size();
        }
      }
      pack_b(block, part, parts);
      team_barrier();  // b is packed, and everybody has done with the other buffer
      buffer = 1 - buffer;
      multiply(block, part, parts);
    });
  });
}

void Gemm::run_packed(const MatmulShape& s, const Operands& operands, int threads) {
  const bool needs_sums = operands.c.is_bf16() && gemm_slots(operands.format, s.k) > kSlots;
  if (needs_sums && sums_ == nullptr) {
    sums_ = hwy::AllocateAligned<float>(static_cast<size_t>(kSumElements));
    MUSTER_CHECK(sums_ != nullptr) << "no memory for sums";
  }
  const int64_t rows_most =
      needs_sums ? kSumElements / std::min(s.n, kColumns) / kRows * kRows : s.m;
  parallel_team(threads, [&](int part, int parts) {
    int64_t buffer = 0;
    for_ranges(s.m, gemm_tile().rows, rows_most,
               [&](Range group) { run_rows(s, operands, group, part, parts, buffer); });
  });
}

void Gemm::run(const MatmulShape& shape, MatrixIn a, MatrixIn b, MatrixOut c) {
  const auto [m, n, k, transpose_a, transpose_b, accumulate] = shape;
  MUSTER_CHECK(!c.is_bf16() || !accumulate) << "a bf16 matrix cannot be added to";
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!accumulate) std::memset(c.data, 0, static_cast<size_t>(m * n) * dtype_bytes(c.dtype));
    return;
  }
  const bool bf16 = a.is_bf16() || b.is_bf16() || c.is_bf16();
  // For bf16 only decoding's case: fp32 weights would have to be rounded on the way.
  const bool in_place = bf16 ? a.is_bf16() && b.is_bf16() && transpose_b && !transpose_a
                             : !(transpose_a && transpose_b);
  const auto threads =
      static_cast<int>(std::clamp<int64_t>(m * n * k / kMultiplyAddsPerThreadMin, 1, threads_));
  if (m > kFewRows || !in_place) {
    const GemmFormat format = bf16 ? gemm_bf16_format() : GemmFormat::kF32;
    return run_packed(shape, {format, a, b, c}, threads);
  }
  parallel_for(threads, n,
               [&](int64_t begin, int64_t end, int) { gemm_few_rows(shape, a, b, c, begin, end); });
}

}  // namespace muster::trainer::cpu
