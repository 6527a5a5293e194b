// Attention over a cache of keys and values in int8.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/unit/trainer_core/ops/ops_fixture.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {
namespace {

// A head of keys with NaN, one of values with infinity, and tiny ones, whose factor would overflow.
TEST(Int8Attention, RowsThatAreNotFiniteHaveTheScaleNaN) {
  constexpr int64_t kDim = 12, kPlaces = 4;
  const AttentionShape shape{.batch = 1, .seq_len = 2, .heads = 1, .kv_heads = 1, .head_dim = kDim};
  const auto ops = cpu_ops(1);
  Values qkv = Values::random({2, shape.qkv_width()}, 1, 2), out({2, shape.out_width()});
  qkv[kDim + 3] = std::nanf("");
  qkv[2 * kDim + 5] = std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < 2 * kDim; ++i) qkv[shape.qkv_width() + kDim + i] = 1e-38F;
  std::vector<int8_t> keys(static_cast<size_t>(kPlaces * kDim), 1), values = keys;
  Values key_scales({kPlaces}, 1), value_scales({kPlaces}, 1);
  const auto elements = [&](std::vector<int8_t>& bytes) {
    return Tensor::of(DType::kI8, bytes.data(), {1, 1, kPlaces, kDim});
  };
  Scratch scratch(cpu_attention_paged_elements(shape, kPlaces, 1));
  TestRows rows(1, 2, 0, 1);
  ops->attention_paged(shape, rows, qkv, {},
                       {elements(keys), elements(values), key_scales, value_scales}, out, scratch);
  EXPECT_TRUE(std::isnan(key_scales[0]));
  EXPECT_TRUE(std::isnan(value_scales[0]));
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(key_scales[1], 0);
  EXPECT_EQ(value_scales[1], 0);
  EXPECT_EQ(keys[kDim], 0);
}

// The result is that of a cache of the rounded keys and values, which differ from the exact ones by
// at most half a step.
TEST(Int8Attention, RoundsKeysAndValues) {
  constexpr int64_t kSequences = 2, kBlocks = 3, kBlock = 4, kFirst = 5, kNew = 6;
  constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 22;
  constexpr int64_t kRows = kSequences * kNew, kPlaces = kSequences * kBlocks * kKvHeads * kBlock;
  const AttentionShape shape{.batch = 1,
                             .seq_len = kRows,
                             .heads = kHeads,
                             .kv_heads = kKvHeads,
                             .head_dim = kDim,
                             .window = 9};
  const auto ops = cpu_ops(2);
  Values qkv = Values::random({kRows, shape.qkv_width()}, 1, 2), out({kRows, shape.out_width()});
  std::vector<int8_t> int8_keys(static_cast<size_t>(kPlaces * kDim)), int8_values = int8_keys;
  for (size_t i = 0; i < int8_keys.size(); ++i) {
    int8_keys[i] = static_cast<int8_t>(i * 37 % 255 - 127);
    int8_values[i] = static_cast<int8_t>(i * 53 % 255 - 127);
  }
  Values key_scales({kPlaces}, 0.01F), value_scales({kPlaces}, 0.02F);
  const auto elements = [&](std::vector<int8_t>& bytes) {
    return Tensor::of(DType::kI8, bytes.data(), {kSequences * kBlocks, kKvHeads, kBlock, kDim});
  };
  Scratch scratch(cpu_attention_paged_elements(shape, kBlocks * kBlock, 2));
  TestRows rows(kSequences, kNew, kFirst, kBlocks);
  ops->attention_paged(shape, rows, qkv, {},
                       {elements(int8_keys), elements(int8_values), key_scales, value_scales}, out,
                       scratch);
  Values keys({kSequences * kBlocks, kKvHeads, kBlock, kDim}), values = keys, expected = out;
  for (int64_t i = 0; i < kPlaces * kDim; ++i) {
    const auto at = static_cast<size_t>(i);
    keys[i] = static_cast<float>(int8_keys[at]) * key_scales[i / kDim];
    values[i] = static_cast<float>(int8_values[at]) * value_scales[i / kDim];
  }
  const PagedRows places = rows;
  for (int64_t row = 0; row < kRows; ++row) {
    const int64_t position = places.positions.i32()[row];
    const int64_t block =
        places.blocks.i32()[places.sequences.i32()[row] * kBlocks + position / kBlock];
    for (int64_t i = 0; i < kKvHeads * kDim; ++i) {
      const int64_t place = (block * kKvHeads + i / kDim) * kBlock + position % kBlock;
      const int64_t key = row * shape.qkv_width() + shape.out_width() + i;
      const int64_t value = key + kKvHeads * kDim;
      EXPECT_NEAR(qkv[key], keys[place * kDim + i % kDim], 0.501 * key_scales[place]);
      EXPECT_NEAR(qkv[value], values[place * kDim + i % kDim], 0.501 * value_scales[place]);
      qkv[key] = keys[place * kDim + i % kDim];
      qkv[value] = values[place * kDim + i % kDim];
    }
  }
  ops->attention_paged(shape, rows, qkv, {}, {keys, values}, expected, scratch);
  expect_near(out, as_double(expected), 1e-5);
}

}  // namespace
}  // namespace muster::trainer
