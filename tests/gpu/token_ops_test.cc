// Embeddings, positions and rope.
#include "tests/gpu/both_backends.h"

namespace muster::trainer {
namespace {

class TokenOps : public RowTest {};
INSTANTIATE_TEST_SUITE_P(Shapes, TokenOps, testing::ValuesIn(row_cases()),
                         testing::PrintToStringParamName());

TEST_P(TokenOps, Embedding) {
  constexpr int64_t kVocab = 50, kFirst = 11, kIds = 30;
  for (const VocabularySlice slice : {VocabularySlice{}, VocabularySlice{kFirst, kVocab}}) {
    const int64_t ids = slice.whole == 0 ? kVocab : kIds;
    Both tokens = Both::ids({rows()}, kVocab, 1);
    Both table = Both::random(DType::kF32, {ids, width()}, 2, 1, GetParam().skewed);
    Both half = Both::random(DType::kBf16, {ids, width()}, 5);
    Both out = activations(3), again(DType::kBf16, {rows(), width()});
    Both dtable = Both::random(DType::kF32, {ids, width()}, 4);
    Both keys(DType::kF32, {row_sort_elements(rows())});
    on_both([&](Ops& ops, Side side) {
      ops.embedding(tokens.on(side), table.on(side), slice, 1.5, out.on(side));
      ops.embedding(tokens.on(side), half.on(side), slice, 1, again.on(side));
      ops.embedding_backward(tokens.on(side), out.on(side), slice, 0.5, dtable.on(side),
                             keys.workspace(side));
    });
    expect_equal(out, "out");
    expect_equal(again, "out of a bf16 table");
    expect_same(dtable, 1e-6, "dtable");
  }
}

// Several parts are sorted and merged, the last one not full; ids are frequent, rare and absent.
// Sums of small integers are exact in any order of the same rows.
TEST(EmbeddingGradient, OfManyRows) {
  constexpr int64_t kRows = 2 * 2048 + 77, kIds = 500, kFirst = 100, kVocab = 1000;
  std::vector<int32_t> ids;
  for (int64_t row = 0; row < kRows; ++row)
    ids.push_back(static_cast<int32_t>(row % 3 == 0 ? 123 : row * row * 31 % kVocab));
  for (const DType type : {DType::kF32, DType::kBf16}) {
    for (const int64_t width : {8, 13}) {
      Both tokens(DType::kI32, {kRows}), dout(type, {kRows, width});
      tokens.set_ids(ids);
      std::vector<float> rows;
      for (int64_t i = 0; i < kRows * width; ++i) rows.push_back(static_cast<float>(i % 19 - 9));
      dout.set(rows);
      Both dtable = Both::filled(DType::kF32, {kIds, width}, 2);
      Both keys(DType::kF32, {row_sort_elements(kRows)});
      on_both([&](Ops& ops, Side side) {
        ops.embedding_backward(tokens.on(side), dout.on(side), {kFirst, kVocab}, 0.5,
                               dtable.on(side), keys.workspace(side));
      });
      expect_equal(dtable, "dtable");
    }
  }
}

// Rows of two sequences that have runs of positions, with and without documents.
TEST_P(TokenOps, Positions) {
  if (rows() < 4) GTEST_SKIP() << "too few rows for two sequences of runs";
  const int64_t each = rows() / 2;
  const Positions positions({10, each / 2}, {90, each - each / 2});
  const TokenRows token_rows{positions, rows() % 2};
  Both table = Both::random(DType::kF32, {positions.end() + 2, width()}, 1);
  Both starts(DType::kI32, {rows()});
  std::vector<int32_t> begins;
  for (int64_t row = 0; row < rows(); ++row)
    begins.push_back(static_cast<int32_t>(token_rows.position(row) < 12   ? 0
                                          : token_rows.position(row) < 92 ? 11
                                                                          : 91));
  starts.set_ids(begins);
  for (const bool documents : {false, true}) {
    Both x = activations(2), dtable = Both::random(DType::kF32, {positions.end() + 2, width()}, 3);
    Both more = Both::random(DType::kF32, {positions.end() + 2, width()}, 4);
    Both keys(DType::kF32, {row_sort_elements(rows())});
    on_both([&](Ops& ops, Side side) {
      const Tensor at = documents ? starts.on(side) : Tensor();
      ops.add_positions(table.on(side), token_rows, at, x.on(side));
      ops.positions_backward(x.on(side), token_rows, at, dtable.on(side), Accumulate::kNo,
                             keys.workspace(side));
      ops.positions_backward(x.on(side), token_rows, at, more.on(side), Accumulate::kYes,
                             keys.workspace(side));
    });
    expect_equal(x, "x + positions");
    expect_same(dtable, 1e-6, "dtable");
    expect_same(more, 1e-6, "dtable +=");
  }
}

// Head dimensions with single pairs and with whole 16-byte packs, each with more heads than a
// thread rotates.
class Rope : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(HeadDims, Rope, testing::Values(10, 32, 64));

TEST_P(Rope, BothPairings) {
  const int64_t head_dim = GetParam(), half = head_dim / 2;
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const bool documents : {false, true}) {
      AttentionShape shape{
          .batch = 2, .seq_len = 13, .heads = 5, .kv_heads = 1, .head_dim = head_dim};
      shape.positions = Positions({4, 6}, {30, 7});
      Both cos = Both::random(DType::kF32, {40, half}, 1);
      Both sin = Both::random(DType::kF32, {40, half}, 2);
      Both starts(DType::kI32, {2, 13});
      std::vector<int32_t> begins;
      for (int64_t row = 0; row < 26; ++row)
        begins.push_back(row % 13 < 2 ? 0 : row % 13 < 8 ? 6 : 31);
      starts.set_ids(begins);
      for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kInterleaved}) {
        Both qkv = Both::random(dtype, {26, shape.qkv_width()}, 3, 1, true);
        Both back = Both::random(dtype, {26, shape.qkv_width()}, 4);
        on_both([&](Ops& ops, Side side) {
          AttentionShape here = shape;
          if (documents) here.starts = starts.on(side);
          ops.rope(here, cos.on(side), sin.on(side), pairs, RopeDirection::kForward, qkv.on(side));
          ops.rope(here, cos.on(side), sin.on(side), pairs, RopeDirection::kBackward,
                   back.on(side));
        });
        expect_same(qkv, bound_of(dtype, 1e-6), "qkv");
        expect_same(back, bound_of(dtype, 1e-6), "dqkv");
      }
    }
  }
}

// Kernels detect ids that the CPU checks beforehand: the process ends at the next call that waits.
TEST(FaultsDeathTest, IdsOutsideTheirTables) {
  // A device does not survive a fork.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Both ids(DType::kI32, {3}), table(DType::kF32, {4, 2}), out(DType::kF32, {3, 2});
  Both logits(DType::kF32, {3, 4}), weights(DType::kF32, {3}), losses(DType::kF32, {3});
  ids.set_ids({0, 4, 3});
  Ops& gpu = *backends().gpu;
  EXPECT_DEATH(
      {
        gpu.embedding(ids.on(Side::kGpu), table.on(Side::kGpu), {}, 1, out.on(Side::kGpu));
        gpu.synchronize();
      },
      "a token outside of the vocabulary");
  EXPECT_DEATH(
      {
        gpu.cross_entropy({}, logits.on(Side::kGpu), ids.on(Side::kGpu), weights.on(Side::kGpu),
                          losses.on(Side::kGpu));
        gpu.synchronize();
      },
      "a target outside of the vocabulary");
}

}  // namespace
}  // namespace muster::trainer
