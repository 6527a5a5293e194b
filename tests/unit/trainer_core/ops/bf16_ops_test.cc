// Every operation on bf16 activations does what it does on fp32 ones of the same values, which
// other tests hold to fp64 references, and then rounds: to the bit. Widths leave tails on every
// instruction set.
#include <bit>
#include <limits>

#include "tests/unit/trainer_core/ops/ops_fixture.h"
#include "trainer_core/base/bf16.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {
namespace {

constexpr int64_t kRows = 6, kWidth = 37;

Values rounded(const Values& values) { return HalfValues(values).widened(); }
Values random_rounded(std::initializer_list<int64_t> dims, uint64_t stream, float scale = 1) {
  return rounded(Values::random(dims, stream, scale));
}

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }

TEST(Bf16, RoundsToTheNearestAndEven) {
  const auto round = [](uint32_t bits) { return Bf16::round(std::bit_cast<float>(bits)).bits; };
  EXPECT_EQ(round(0x3f800000), 0x3f80);  // 1
  EXPECT_EQ(round(0x3f807fff), 0x3f80);  // less than half
  EXPECT_EQ(round(0x3f808000), 0x3f80);  // half: to the even one, below
  EXPECT_EQ(round(0x3f818000), 0x3f82);  // half: to the even one, above
  EXPECT_EQ(round(0x3f808001), 0x3f81);  // more than half
  EXPECT_EQ(round(0xbf818000), 0xbf82);
  EXPECT_EQ(round(0x00000001), 0x0000);  // denormals round like others
  EXPECT_EQ(round(0x00018000), 0x0002);
  EXPECT_EQ(round(0x80000000), 0x8000);
  EXPECT_EQ(round(0x7f7fffff), 0x7f80);  // the largest fp32 number is nearer to infinity
  EXPECT_EQ(round(0x7f7f7fff), 0x7f7f);
  EXPECT_EQ(round(0xff800000), 0xff80);
  EXPECT_EQ(round(0x7f800001), 0x7fc0);  // a NaN whose payload is in the discarded half
  EXPECT_EQ(round(0xffffffff), 0xffff);
}

// The kernels' rounding, in whole vectors and in the rest of a row, is Bf16::round. Scaling by 1
// only loads and stores.
TEST(Bf16, KernelsLoadAndStoreEveryNumber) {
  constexpr int64_t kNumbers = 1 << 16;
  const auto ops = cpu_ops(2);
  std::vector<Bf16> numbers(kNumbers + 3);
  for (int64_t i = 0; i < kNumbers + 3; ++i)
    numbers[static_cast<size_t>(i)].bits = static_cast<uint16_t>(i);
  const std::vector<Bf16> before = numbers;
  ops->scale(1, Tensor::bf16(numbers.data(), {kNumbers + 3}));
  for (size_t i = 0; i < numbers.size(); ++i)
    ASSERT_EQ(numbers[i].bits, Bf16::round(before[i].value()).bits) << i;
}

TEST(Bf16, KernelsRoundLikeTheScalarCode) {
  constexpr int64_t kNumbers = 4099;
  const auto ops = cpu_ops(1);
  // bias + 0: every sum is the bias, rounded.
  Values bias({kNumbers});
  const Philox philox{.key = 9, .stream = 9};
  for (int64_t i = 0; i < kNumbers; ++i)
    bias[i] = std::bit_cast<float>(philox(static_cast<uint64_t>(i))[0]);
  const uint32_t special[] = {0x3f808000, 0x3f818000, 0x7f800001, 0x7f7fffff,
                              0x00018000, 0x00008001, 0xff800000, 0xffffffff};
  for (int64_t i = 0; i < 8; ++i) {
    bias[i] = std::bit_cast<float>(special[i]);
    bias[kNumbers - 1 - i] = bias[i];
  }
  std::vector<Bf16> sums(kNumbers, Bf16{0x8000});  // -0, which changes no sum
  ops->add_bias(bias, Tensor::bf16(sums.data(), {1, kNumbers}));
  for (int64_t i = 0; i < kNumbers; ++i) {
    const float sum = sums[static_cast<size_t>(i)].value();
    if (std::isnan(bias[i])) {
      ASSERT_TRUE(std::isnan(sum)) << i;
    } else {
      ASSERT_EQ(bits_of(sum), bits_of(Bf16::round(bias[i]).value())) << i;
    }
  }
}

class Bf16Ops : public testing::Test {
 protected:
  std::unique_ptr<Ops> ops_ = cpu_ops(2);
};

TEST_F(Bf16Ops, Elementwise) {
  Values x = random_rounded({kRows, kWidth}, 1), y({kRows, kWidth});
  HalfValues half(x), half_y(y);
  ops_->copy(half, half_y);
  EXPECT_EQ(half_y.widened(), x);
  ops_->scale(0.3, half);
  ops_->scale(0.3, x);
  EXPECT_EQ(half.widened(), rounded(x));
  ops_->fill(half, 1.01F);
  ops_->fill(x, 1.01F);
  EXPECT_EQ(half.widened(), rounded(x));
}

TEST_F(Bf16Ops, BiasAndPositions) {
  Values x = random_rounded({kRows, kWidth}, 1), bias = Values::random({kWidth}, 2);
  HalfValues half(x);
  ops_->add_bias(bias, half);
  ops_->add_bias(bias, x);
  EXPECT_EQ(half.widened(), rounded(x));
  x = half.widened();
  Values d_bias({kWidth}), d_bias_of_half({kWidth});
  Scratch scratch(cpu_bias_backward_elements(kWidth));
  ops_->bias_backward(x, d_bias, Accumulate::kNo, scratch);
  ops_->bias_backward(half, d_bias_of_half, Accumulate::kNo, scratch);
  EXPECT_EQ(d_bias, d_bias_of_half);

  Values table = Values::random({4, kWidth}, 3);
  ops_->add_positions(table, {Positions::first(3)}, {}, half);
  ops_->add_positions(table, {Positions::first(3)}, {}, x);
  EXPECT_EQ(half.widened(), rounded(x));
  x = half.widened();
  Values d_table({4, kWidth}), d_table_of_half({4, kWidth});
  Scratch keys(row_sort_elements(kRows));
  ops_->positions_backward(x, {Positions::first(3)}, {}, d_table, Accumulate::kNo, keys);
  ops_->positions_backward(half, {Positions::first(3)}, {}, d_table_of_half, Accumulate::kNo, keys);
  EXPECT_EQ(d_table, d_table_of_half);
}

TEST_F(Bf16Ops, Embedding) {
  for (const double scale : {1.0, 3.3}) {
    Ids tokens(kRows, 5, 1);
    Values table = Values::random({5, kWidth}, 2), out({kRows, kWidth});
    HalfValues half(out);
    ops_->embedding(tokens, table, {}, scale, out);
    ops_->embedding(tokens, table, {}, scale, half);
    EXPECT_EQ(half.widened(), rounded(out));
    // Decoding's table.
    Values rounded_table = rounded(table);
    HalfValues half_table(table), of_half_table(out);
    ops_->embedding(tokens, rounded_table, {}, scale, half);
    ops_->embedding(tokens, half_table, {}, scale, of_half_table);
    EXPECT_EQ(of_half_table.widened(), half.widened());
    out = half.widened();
    Values d_table({5, kWidth}, 1), d_table_of_half({5, kWidth}, 1);
    Scratch keys(row_sort_elements(kRows));
    ops_->embedding_backward(tokens, out, {}, scale, d_table, keys);
    ops_->embedding_backward(tokens, half, {}, scale, d_table_of_half, keys);
    EXPECT_EQ(d_table, d_table_of_half);
  }
}

TEST_F(Bf16Ops, Norms) {
  for (const NormType type : {NormType::kRms, NormType::kLayer}) {
    const NormShape shape{type, 1e-5, 1};
    Values x = random_rounded({kRows, kWidth}, 1), delta = random_rounded({kRows, kWidth}, 2);
    Values gain = Values::random({kWidth}, 3), bias = Values::random({kWidth}, 4);
    const NormWeights weights{gain, bias};
    Values y({kRows, kWidth}), stats({shape.stats(kRows)}), half_stats = stats;
    HalfValues half_x(x), half_delta(delta), half_sum(y), half_y(y);
    ops_->add_norm(shape, half_x, half_delta, weights, half_sum, half_y, half_stats);
    // The sum is rounded before it is normed, so that the norm of the stored sum is the same.
    Values sum({kRows, kWidth});
    for (int64_t i = 0; i < sum.size(); ++i) sum[i] = x[i] + delta[i];
    sum = rounded(sum);
    EXPECT_EQ(half_sum.widened(), sum);
    ops_->norm(shape, sum, weights, y, stats);
    EXPECT_EQ(half_y.widened(), rounded(y));
    EXPECT_EQ(half_stats, stats);
    HalfValues again(y);
    ops_->norm(shape, half_sum, weights, again, half_stats);
    EXPECT_EQ(again.widened(), half_y.widened());

    Values dy = random_rounded({kRows, kWidth}, 5), dx = random_rounded({kRows, kWidth}, 6);
    Values d_gain({kWidth}), d_bias({kWidth}), half_gain({kWidth}), half_bias({kWidth});
    HalfValues half_dy(dy), half_dx(dx);
    Scratch scratch(cpu_norm_backward_elements(kWidth));
    ops_->norm_backward(shape, dy, sum, weights, stats, dx, {d_gain, d_bias}, Accumulate::kNo,
                        scratch);
    ops_->norm_backward(shape, half_dy, half_sum, weights, stats, half_dx, {half_gain, half_bias},
                        Accumulate::kNo, scratch);
    EXPECT_EQ(half_dx.widened(), rounded(dx));
    EXPECT_EQ(half_gain, d_gain);
    EXPECT_EQ(half_bias, d_bias);
  }
}

TEST_F(Bf16Ops, Rope) {
  const AttentionShape shape{.batch = 2, .seq_len = 3, .heads = 2, .kv_heads = 1, .head_dim = 38};
  for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kInterleaved}) {
    Values qkv = random_rounded({6, shape.qkv_width()}, 1);
    Values cos = Values::random({3, 19}, 2), sin = Values::random({3, 19}, 3);
    HalfValues half(qkv);
    ops_->rope(shape, cos, sin, pairs, RopeDirection::kForward, qkv);
    ops_->rope(shape, cos, sin, pairs, RopeDirection::kForward, half);
    EXPECT_EQ(half.widened(), rounded(qkv));
  }
}

// If the processor multiplies pairs of bf16, probabilities and the gradients of scores are rounded,
// too: each by at most 2^-9 relative, and many are summed. Elsewhere only results are. Odd sizes
// leave half a pair.
TEST_F(Bf16Ops, Attention) {
  for (const auto& [seq_len, head_dim] : {std::pair{130, 10}, {131, 64}, {65, 7}, {1, 3}}) {
    const AttentionShape shape{.batch = 2,
                               .seq_len = seq_len,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = head_dim,
                               .soft_cap = 3,
                               .window = 90,
                               .extra_zero = true,
                               .buckets = {8, 20}};
    constexpr double kBand = 1.0 / 128;
    Values bias = Values::random({4, 8}, 3), dbias({4, 8}), half_dbias({4, 8});
    const int64_t rows = shape.rows();
    Values qkv = random_rounded({rows, shape.qkv_width()}, 1), out({rows, shape.out_width()});
    Values lse({2, 4, seq_len}), half_lse = lse, dqkv({rows, shape.qkv_width()});
    HalfValues half_qkv(qkv), half_out(out), half_dqkv(dqkv);
    Scratch scratch(
        std::max(cpu_attention_elements(shape, 2), cpu_attention_backward_elements(shape, 2)));
    ops_->attention(shape, qkv, bias, out, lse, scratch);
    ops_->attention(shape, half_qkv, bias, half_out, half_lse, scratch);
    expect_near(half_out.widened(), as_double(out), kBand);
    expect_near(half_lse, as_double(lse), 1e-6);
    out = half_out.widened();
    Values dout = random_rounded({rows, shape.out_width()}, 2);
    HalfValues half_dout(dout);
    ops_->attention_backward(shape, qkv, bias, out, lse, dout, dqkv, dbias, Accumulate::kNo,
                             scratch);
    ops_->attention_backward(shape, half_qkv, bias, half_out, lse, half_dout, half_dqkv, half_dbias,
                             Accumulate::kNo, scratch);
    expect_near(half_dbias, as_double(dbias), 1e-5);
    expect_near(half_dqkv.widened(), as_double(dqkv), kBand);
  }
}

// Keys and values go into a cache as they are.
TEST_F(Bf16Ops, PagedAttention) {
  constexpr int64_t kBlocks = 5, kBlock = 15;
  AttentionShape shape{
      .batch = 1, .seq_len = 14, .heads = 4, .kv_heads = 2, .head_dim = 22, .soft_cap = 3};
  const Tensor no_bias;
  Values keys = random_rounded({2 * kBlocks, 2, kBlock, 22}, 3),
         values = random_rounded({2 * kBlocks, 2, kBlock, 22}, 4);
  HalfValues half_keys(keys), half_values(values);
  Scratch scratch(cpu_attention_paged_elements(shape, kBlocks * kBlock, 2));
  TestRows rows(2, 7, 61, kBlocks);
  for (const int64_t window : {0, 40}) {
    shape.window = window;
    Values qkv = random_rounded({14, shape.qkv_width()}, 1), out({14, shape.out_width()});
    HalfValues half_qkv(qkv), half_out(out);
    ops_->attention_paged(shape, rows, qkv, no_bias, {keys, values}, out, scratch);
    ops_->attention_paged(shape, rows, half_qkv, no_bias, {half_keys, half_values}, half_out,
                          scratch);
    EXPECT_EQ(half_out.widened(), rounded(out));
    EXPECT_EQ(half_keys.widened(), keys);
    EXPECT_EQ(half_values.widened(), values);
  }
}

// Activations by weights; the kernels behind have tests of their own.
TEST_F(Bf16Ops, Matmul) {
  Values x = random_rounded({kRows, kWidth}, 1), weight = Values::random({5, kWidth}, 2);
  Values exact({kRows, 5}), logits({kRows, 5});
  HalfValues half_x(x), half_y(exact);
  Values rounded_weight = rounded(weight);
  ops_->matmul(x, Transpose::kNo, rounded_weight, Transpose::kYes, exact, Accumulate::kNo);
  ops_->matmul(half_x, Transpose::kNo, weight, Transpose::kYes, logits, Accumulate::kNo);
  expect_near(logits, as_double(exact), 1e-6);
  ops_->matmul(half_x, Transpose::kNo, weight, Transpose::kYes, half_y, Accumulate::kNo);
  EXPECT_EQ(half_y.widened(), rounded(logits));
  // Decoding's weights: few rows are multiplied where they lie, many in panels.
  HalfValues half_weight(weight);
  ops_->matmul(half_x, Transpose::kNo, half_weight, Transpose::kYes, logits, Accumulate::kNo);
  expect_near(logits, as_double(exact), 1e-6);
}

// A search for NaN in an activation needs its squares.
TEST(Bf16Sums, AreThoseOfTheWidenedNumbers) {
  const auto ops = cpu_ops(2);
  Values x = Values::random({5, 3001}, 4, 3);
  HalfValues narrow(x);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    const double value = Bf16::round(x[i]).value();
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(ops->sum(narrow), sum, 1e-9 * squares);
  EXPECT_NEAR(ops->sum_of_squares(narrow), squares, 1e-12 * squares);
}

TEST(Bf16DeathTest, ActivationsOfTwoTypes) {
  const auto ops = cpu_ops(1);
  Values x({2, 4}), gain({4}), stats({2});
  HalfValues y(x);
  EXPECT_DEATH(ops->norm({}, x, {gain, gain}, y, stats), "activations of two types");
  EXPECT_DEATH(ops->matmul(x, Transpose::kNo, x, Transpose::kYes, y, Accumulate::kYes),
               "cannot be added to|matmul of");
}

}  // namespace
}  // namespace muster::trainer
