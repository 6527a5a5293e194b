// All variants of attention on both backends.
#include "tests/gpu/both_backends.h"

namespace muster::trainer {
namespace {

constexpr int kCpuThreads = 2;  // the number of threads in backends()

struct AttentionCase {
  AttentionShape shape;
  // First positions of the documents after the first, in every sequence.
  std::vector<int32_t> documents;
};
std::vector<AttentionCase> attention_cases() {
  std::vector<AttentionCase> cases = {
      {{.batch = 1, .seq_len = 1, .heads = 1, .kv_heads = 1, .head_dim = 2}, {}},
      {{.batch = 2, .seq_len = 37, .heads = 4, .kv_heads = 2, .head_dim = 8}, {}},
      {{.batch = 1, .seq_len = 70, .heads = 2, .kv_heads = 1, .head_dim = 64}, {}},
      {{.batch = 1, .seq_len = 50, .heads = 2, .kv_heads = 2, .head_dim = 128}, {}},
      {{.batch = 1, .seq_len = 40, .heads = 2, .kv_heads = 1, .head_dim = 256}, {}},
      {{.batch = 1, .seq_len = 33, .heads = 3, .kv_heads = 3, .head_dim = 20, .window = 9}, {}},
      {{.batch = 2,
        .seq_len = 65,
        .heads = 2,
        .kv_heads = 1,
        .head_dim = 12,
        .scale = 0.5,
        .soft_cap = 2,
        .window = 40,
        .extra_zero = true},
       {1, 20, 33, 64}},
      {{.batch = 2, .seq_len = 90, .heads = 4, .kv_heads = 2, .head_dim = 16, .buckets = {8, 20}},
       {30}},
      {{.batch = 1,
        .seq_len = 40,
        .heads = 1,
        .kv_heads = 1,
        .head_dim = 8,
        .soft_cap = 3,
        .extra_zero = true,
        .buckets = {32, 128}},
       {}},
      // Shapes around the tiles of the bf16 kernels: 64 queries, 64, 32 or 16 keys, heads padded to
      // 64, 128 or 256 columns; with borders of documents and windows at their edges and within
      // them.
      {{.batch = 1, .seq_len = 64, .heads = 4, .kv_heads = 1, .head_dim = 40}, {}},
      {{.batch = 2, .seq_len = 65, .heads = 2, .kv_heads = 2, .head_dim = 80, .window = 17},
       {15, 16, 17, 63}},
      {{.batch = 1, .seq_len = 128, .heads = 2, .kv_heads = 1, .head_dim = 96}, {64}},
      {{.batch = 1, .seq_len = 129, .heads = 3, .kv_heads = 1, .head_dim = 192, .window = 64},
       {50, 100}},
      {{.batch = 1, .seq_len = 230, .heads = 2, .kv_heads = 1, .head_dim = 24, .window = 70},
       {63, 64, 130}},
      {{.batch = 1, .seq_len = 260, .heads = 2, .kv_heads = 2, .head_dim = 64}, {100, 193}},
      {{.batch = 1, .seq_len = 150, .heads = 1, .kv_heads = 1, .head_dim = 7, .soft_cap = 1}, {}},
      {{.batch = 1,
        .seq_len = 100,
        .heads = 1,
        .kv_heads = 1,
        .head_dim = 256,
        .soft_cap = 5,
        .buckets = {8, 20}},
       {}},
      {{.batch = 1,
        .seq_len = 130,
        .heads = 2,
        .kv_heads = 1,
        .head_dim = 128,
        .extra_zero = true,
        .buckets = {32, 128}},
       {70}}};
  if (large_shapes()) {
    cases.push_back(
        {{.batch = 2, .seq_len = 2048, .heads = 16, .kv_heads = 4, .head_dim = 128}, {}});
    cases.push_back(
        {{.batch = 1, .seq_len = 1500, .heads = 8, .kv_heads = 8, .head_dim = 64, .window = 512},
         {700, 1100}});
  }
  return cases;
}

Both starts_of(const AttentionCase& c) {
  Both starts(DType::kI32, {c.shape.batch, c.shape.seq_len});
  std::vector<int32_t> values;
  for (int64_t row = 0; row < c.shape.rows(); ++row) {
    int32_t start = 0;
    for (const int32_t document : c.documents)
      if (document <= row % c.shape.seq_len) start = document;
    values.push_back(start);
  }
  starts.set_ids(values);
  return starts;
}

class Attention : public testing::TestWithParam<std::tuple<AttentionCase, DType>> {
 protected:
  const AttentionCase& c() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
  AttentionShape shape(Side side) {
    AttentionShape shape = c().shape;
    if (!c().documents.empty()) shape.starts = starts_.on(side);
    return shape;
  }
  Tensor bias(Side side) { return c().shape.buckets.exist() ? bias_.on(side) : Tensor(); }
  // The CPU rounds probabilities and dS to bf16 if it has instructions for that.
  double bound() const { return dtype() == DType::kBf16 ? 2e-2 : 2e-5; }
  void forward_and_backward(bool skewed);

  Both starts_ = starts_of(c());
  Both bias_ =
      Both::random(DType::kF32, {c().shape.heads, std::max(1, c().shape.buckets.count)}, 9);
  Both workspace_{DType::kF32,
                  {std::max({cpu_attention_elements(c().shape, kCpuThreads),
                             cpu_attention_backward_elements(c().shape, kCpuThreads),
                             cuda_attention_backward_elements(c().shape)})}};
};
INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         testing::Combine(testing::ValuesIn(attention_cases()),
                                          testing::Values(DType::kF32, DType::kBf16)));

class AlignedAttention : public Attention {};
INSTANTIATE_TEST_SUITE_P(Shapes, AlignedAttention,
                         testing::Combine(testing::ValuesIn(attention_cases()),
                                          testing::Values(DType::kBf16)));

void Attention::forward_and_backward(bool skewed) {
  const AttentionShape& s = c().shape;
  Both qkv = Both::random(dtype(), {s.rows(), s.qkv_width()}, 1, 2, skewed);
  Both out(dtype(), {s.rows(), s.out_width()}), lse(DType::kF32, {s.batch, s.heads, s.seq_len});
  Both dout = Both::random(dtype(), {s.rows(), s.out_width()}, 2);
  Both dqkv(dtype(), {s.rows(), s.qkv_width()}, true);
  Both dbias = Both::random(DType::kF32, {s.heads, std::max(1, s.buckets.count)}, 3);
  on_both([&](Ops& ops, Side side) {
    ops.attention(shape(side), qkv.on(side), bias(side), out.on(side), lse.on(side),
                  workspace_.workspace(side));
  });
  expect_same(out, bound(), "out");
  expect_same(lse, dtype() == DType::kBf16 ? 1e-3 : 1e-5, "lse");
  on_both([&](Ops& ops, Side side) {
    ops.attention_backward(shape(side), qkv.on(side), bias(side), out.on(side), lse.on(side),
                           dout.on(side), dqkv.on(side),
                           s.buckets.exist() ? dbias.on(side) : Tensor(), Accumulate::kYes,
                           workspace_.workspace(side));
  });
  expect_same(dqkv, 2 * bound(), "dqkv");
  expect_same(dbias, 2 * bound(), "dbias");
}

TEST_P(Attention, ForwardAndBackward) { forward_and_backward(/*skewed=*/true); }
// Rows aligned to 16 bytes are copied by another path.
TEST_P(AlignedAttention, ForwardAndBackward) { forward_and_backward(/*skewed=*/false); }

TEST_P(Attention, OfBlocks) {
  AttentionShape s = c().shape;
  if (s.seq_len < 4) GTEST_SKIP() << "too short for blocks";
  // This rank has the first and the last quarter; the positions of other ranks arrive as a block
  // behind its own.
  const int64_t quarter = s.seq_len / 4, rest = s.seq_len - 2 * quarter;
  const Positions own({0, quarter}, {s.seq_len - quarter, quarter}), others({quarter, rest});
  s.seq_len = 2 * quarter;
  s.positions = own;
  Both starts(DType::kI32, {s.batch, s.seq_len});
  std::vector<int32_t> begins;
  const std::vector<double> all = starts_.values(Side::kCpu);
  for (int64_t row = 0; row < s.rows(); ++row)
    begins.push_back(static_cast<int32_t>(
        all[static_cast<size_t>(row / s.seq_len * c().shape.seq_len + own.at(row % s.seq_len))]));
  starts.set_ids(begins);
  Both qkv = Both::random(dtype(), {s.rows(), s.qkv_width()}, 1, 2);
  Both mine = Both::random(dtype(), {s.rows(), s.kv_width()}, 2, 2);
  Both theirs = Both::random(dtype(), {s.batch * rest, s.kv_width()}, 3, 2);
  Both sums(DType::kF32, {s.rows(), s.out_width()}),
      lse(DType::kF32, {s.batch, s.heads, s.seq_len});
  Both out(dtype(), {s.rows(), s.out_width()}),
      dout = Both::random(dtype(), {s.rows(), s.out_width()}, 4);
  Both dq = Both::random(DType::kF32, {s.rows(), s.out_width()}, 5);
  Both dkv = Both::random(DType::kF32, {s.batch * rest, s.kv_width()}, 6);
  Both dbias = Both::random(DType::kF32, {s.heads, std::max(1, s.buckets.count)}, 7);
  Both workspace(DType::kF32, {std::max({cpu_attention_elements(s, own, kCpuThreads),
                                         cpu_attention_backward_elements(s, others, kCpuThreads),
                                         cpu_attention_elements(s, others, kCpuThreads),
                                         cuda_attention_backward_elements(s)})});
  const auto here = [&](Side side) {
    AttentionShape shape = s;
    if (!c().documents.empty()) shape.starts = starts.on(side);
    return shape;
  };
  on_both([&](Ops& ops, Side side) {
    ops.attention_block(here(side), qkv.on(side), {mine.on(side), own}, bias(side),
                        {sums.on(side), lse.on(side)}, Accumulate::kNo, workspace.workspace(side));
    ops.attention_block(here(side), qkv.on(side), {theirs.on(side), others}, bias(side),
                        {sums.on(side), lse.on(side)}, Accumulate::kYes, workspace.workspace(side));
    ops.copy(sums.on(side), out.on(side));
  });
  expect_same(sums, bound(), "out");
  expect_same(lse, dtype() == DType::kBf16 ? 1e-3 : 1e-5, "lse");
  on_both([&](Ops& ops, Side side) {
    ops.attention_block_backward(
        here(side), qkv.on(side), {theirs.on(side), others}, bias(side), out.on(side), lse.on(side),
        dout.on(side), {dq.on(side), dkv.on(side), s.buckets.exist() ? dbias.on(side) : Tensor()},
        workspace.workspace(side));
  });
  expect_same(dq, 2 * bound(), "dq");
  expect_same(dkv, 2 * bound(), "dkv");
  expect_same(dbias, 2 * bound(), "dbias");
}

TEST_P(Attention, Paged) {
  AttentionShape s = c().shape;
  if (!c().documents.empty()) GTEST_SKIP() << "decoding has no documents";
  constexpr int64_t kNew = 3, kBlock = 8, kSequences = 2;
  const int64_t position = s.seq_len, each = (s.seq_len + kNew + 5 + kBlock - 1) / kBlock;
  s.batch = 1;
  s.seq_len = kSequences * kNew;
  // The second sequence is one position longer; the blocks of both are mixed and in reverse order.
  std::vector<int32_t> of_row, at, order;
  for (int64_t row = 0; row < s.seq_len; ++row) {
    of_row.push_back(static_cast<int32_t>(row / kNew));
    at.push_back(static_cast<int32_t>(position + row % kNew + row / kNew));
  }
  for (int64_t b = 0; b < kSequences; ++b) {
    for (int64_t i = 0; i < each; ++i)
      order.push_back(static_cast<int32_t>((each - 1 - i) * kSequences + b));
  }
  Both sequences(DType::kI32, {s.seq_len}), positions(DType::kI32, {s.seq_len});
  Both blocks(DType::kI32, {kSequences, each});
  sequences.set_ids(of_row);
  positions.set_ids(at);
  blocks.set_ids(order);
  const std::vector<int64_t> cache = {kSequences * each, s.kv_heads, kBlock, s.head_dim};
  Both qkv = Both::random(dtype(), {s.rows(), s.qkv_width()}, 1, 2);
  Both keys = Both::random(dtype(), cache, 2, 2), values = Both::random(dtype(), cache, 3, 2);
  Both out(dtype(), {s.rows(), s.out_width()});
  Both workspace(DType::kF32, {cpu_attention_paged_elements(s, each * kBlock, kCpuThreads)});
  on_both([&](Ops& ops, Side side) {
    ops.attention_paged(s, {sequences.on(side), positions.on(side), blocks.on(side)}, qkv.on(side),
                        bias(side), {keys.on(side), values.on(side)}, out.on(side),
                        workspace.workspace(side));
  });
  expect_equal(keys, "cached keys");
  expect_equal(values, "cached values");
  expect_same(out, bound(), "out");
  // The same with int8.
  Both int8_keys = Both::random(DType::kI8, cache, 6, 127);
  Both int8_values = Both::random(DType::kI8, cache, 7, 127);
  const std::vector<int64_t> of_scales(cache.begin(), cache.end() - 1);
  Both key_scales = Both::random(DType::kF32, of_scales, 4, 0.01F);
  Both value_scales = Both::random(DType::kF32, of_scales, 5, 0.01F);
  on_both([&](Ops& ops, Side side) {
    ops.attention_paged(
        s, {sequences.on(side), positions.on(side), blocks.on(side)}, qkv.on(side), bias(side),
        {int8_keys.on(side), int8_values.on(side), key_scales.on(side), value_scales.on(side)},
        out.on(side), workspace.workspace(side));
  });
  expect_equal(int8_keys, "cached keys in int8");
  expect_equal(int8_values, "cached values in int8");
  expect_same(key_scales, 1e-6, "scales of keys");
  expect_same(value_scales, 1e-6, "scales of values");
  expect_same(out, bound(), "out with int8");
}

// Masked keys of a tile may hold NaN: memory that was never written, or values that diverged on
// another rank.
class MaskedKeys : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, MaskedKeys, testing::Values(DType::kF32, DType::kBf16));

TEST_P(MaskedKeys, MayBeNaN) {
  // Queries of two chunks; the first keys before each chunk are outside the window. Documents begin
  // at 0 and 120.
  AttentionShape s = {.batch = 1, .seq_len = 48, .heads = 2, .kv_heads = 1, .head_dim = 72};
  s.window = 20;
  s.positions = Positions({100, 37}, {160, 11});
  const Positions keys({70, 30}, {137, 23});
  const DType dtype = GetParam();
  Both starts(DType::kI32, {s.seq_len});
  std::vector<int32_t> begins;
  for (int64_t row = 0; row < s.seq_len; ++row)
    begins.push_back(s.positions.at(row) < 120 ? 0 : 120);
  starts.set_ids(begins);
  s.starts = starts.on(Side::kGpu);
  const auto seen = [&](int64_t key) {
    for (int64_t row = 0; row < s.seq_len; ++row) {
      const int64_t query = s.positions.at(row);
      if (key <= query && key > query - s.window && key >= begins[static_cast<size_t>(row)])
        return true;
    }
    return false;
  };
  Both qkv = Both::random(dtype, {s.rows(), s.qkv_width()}, 1);
  Both rows = Both::random(dtype, {keys.count(), s.kv_width()}, 2);
  Both dout = Both::random(dtype, {s.rows(), s.out_width()}, 3);
  Both workspace(DType::kF32, {cuda_attention_backward_elements(s)});
  std::vector<std::vector<double>> results[2];
  for (auto& of_order : results) {
    Both sums(DType::kF32, {s.rows(), s.out_width()}),
        lse(DType::kF32, {s.batch, s.heads, s.seq_len}), out(dtype, {s.rows(), s.out_width()});
    Both dq(DType::kF32, {s.rows(), s.out_width()}), dkv(DType::kF32, {keys.count(), s.kv_width()});
    const Side gpu = Side::kGpu;
    Ops& ops = *backends().gpu;
    ops.attention_block(s, qkv.on(gpu), {rows.on(gpu), keys}, {}, {sums.on(gpu), lse.on(gpu)},
                        Accumulate::kNo, {});
    ops.copy(sums.on(gpu), out.on(gpu));
    ops.attention_block_backward(s, qkv.on(gpu), {rows.on(gpu), keys}, {}, out.on(gpu), lse.on(gpu),
                                 dout.on(gpu), {dq.on(gpu), dkv.on(gpu), {}},
                                 workspace.workspace(gpu));
    for (Both* each : {&sums, &lse, &dq, &dkv}) {
      of_order.push_back(each->values(gpu));
      for (const double number : of_order.back()) ASSERT_TRUE(std::isfinite(number));
    }
    std::vector<float> spoiled;
    for (const double number : rows.values(Side::kCpu)) {
      const auto row = static_cast<int64_t>(spoiled.size()) / s.kv_width();
      spoiled.push_back(seen(keys.at(row)) ? static_cast<float>(number) : std::nanf(""));
    }
    rows.set(spoiled);
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace muster::trainer
