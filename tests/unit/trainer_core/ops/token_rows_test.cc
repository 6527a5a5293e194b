// Ops of a rank that has some positions, rows and columns, against the same op of one that has all.
#include "trainer_core/ops/token_rows.h"

#include "tests/unit/trainer_core/ops/sequence_rows.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {
namespace {

constexpr int64_t kBatch = 3, kLength = 24, kTokenWidth = 10;
const std::vector<Positions> kRanks = {Positions::first(kLength), Positions({6, 6}, {12, 6}),
                                       Positions({0, 5}, {19, 5}), Positions(PositionRun{7, 3}),
                                       Positions({20, 4}, {2, 1})};

// Two documents in each sequence, which begin one position later than in the previous sequence.
std::vector<int32_t> starts_of(const Positions& positions) {
  std::vector<int32_t> starts;
  for_rank_rows(kBatch, kLength, positions, [&](int64_t, int64_t token) {
    const auto begin = static_cast<int32_t>(8 + token / kLength);
    starts.push_back(token % kLength >= begin ? begin : 0);
  });
  return starts;
}

TEST(Positions, RunsMapRowsToPositions) {
  const Positions positions({6, 6}, {18, 4});
  EXPECT_EQ(positions.count(), 10);
  EXPECT_EQ(positions.end(), 22);
  std::vector<int64_t> all;
  for (int64_t row = 0; row < positions.count(); ++row) all.push_back(positions.at(row));
  EXPECT_EQ(all, (std::vector<int64_t>{6, 7, 8, 9, 10, 11, 18, 19, 20, 21}));
  for (int64_t first = 0; first < 10; ++first) {
    for (int64_t count = 0; first + count <= 10; ++count) {
      const Positions part = positions.slice(first, count);
      ASSERT_EQ(part.count(), count);
      for (int64_t row = 0; row < count; ++row) ASSERT_EQ(part.at(row), positions.at(first + row));
    }
  }
  EXPECT_EQ(Positions({2, 3}, {5, 4}), Positions(PositionRun{2, 7}));  // they join
}

TEST(TokenRows, Rope) {
  const auto ops = cpu_ops(2);
  for (const bool packed : {false, true}) {
    AttentionShape whole{
        .batch = kBatch, .seq_len = kLength, .heads = 2, .kv_heads = 1, .head_dim = 6};
    std::vector<int32_t> starts = starts_of(Positions::first(kLength));
    if (packed) whole.starts = Tensor::i32(starts.data(), {kBatch * kLength});
    Values cos = Values::random({kLength, 3}, 1), sin = Values::random({kLength, 3}, 2);
    const Values before = Values::random({whole.rows(), whole.qkv_width()}, 3);
    Values after = before;
    ops->rope(whole, cos, sin, RopePairs::kHalves, RopeDirection::kForward, after);
    for (const Positions& positions : kRanks) {
      AttentionShape shape = whole;
      shape.seq_len = positions.count();
      shape.positions = positions;
      starts = starts_of(positions);
      if (packed) shape.starts = Tensor::i32(starts.data(), {shape.rows()});
      Values qkv = rank_rows(before, kBatch, kLength, positions);
      ops->rope(shape, cos, sin, RopePairs::kHalves, RopeDirection::kForward, qkv);
      EXPECT_EQ(qkv, rank_rows(after, kBatch, kLength, positions));
    }
  }
}

// Covers all rows of a rank and a part of them, as in tensor parallelism.
TEST(TokenRows, LearnedPositions) {
  const auto ops = cpu_ops(2);
  for (const bool packed : {false, true}) {
    Values table = Values::random({kLength + 2, kTokenWidth}, 1);
    for (const Positions& positions : kRanks) {
      std::vector<int32_t> starts = starts_of(positions);
      const int64_t all = kBatch * positions.count();
      for (const auto& [first, count] : {std::pair(int64_t{0}, all), std::pair(all / 3, all / 2)}) {
        const TokenRows rows{positions, first};
        const Tensor of_rows = packed ? Tensor::i32(starts.data() + first, {count}) : Tensor{};
        const Values before = Values::random({count, kTokenWidth}, 2);
        Values x = before, dtable({kLength + 2, kTokenWidth}, -7);
        ops->add_positions(table, rows, of_rows, x);
        Scratch keys(row_sort_elements(count));
        ops->positions_backward(x, rows, of_rows, dtable, Accumulate::kNo, keys);
        std::vector<double> sums(static_cast<size_t>(dtable.size()));
        for (int64_t row = 0; row < count; ++row) {
          const int64_t position = positions.at((first + row) % positions.count());
          const int64_t location =
              position - (packed ? starts[static_cast<size_t>(first + row)] : 0);
          for (int64_t i = 0; i < kTokenWidth; ++i) {
            ASSERT_EQ(x[row * kTokenWidth + i],
                      before[row * kTokenWidth + i] + table[location * kTokenWidth + i]);
            sums[static_cast<size_t>(location * kTokenWidth + i)] += x[row * kTokenWidth + i];
          }
        }
        expect_near(dtable, sums, 1e-6);
      }
    }
  }
}

TEST(TokenRows, StochasticRounding) {
  const auto ops = cpu_ops(2);
  const Values x = Values::random({kBatch * kLength, kTokenWidth}, 1, 9);
  const auto rounded = [&](Values part, const SampleElements& elements) {
    Values one({1}, 1), out({part.size() / kTokenWidth, kTokenWidth});
    ops->quantize(NumberGrid::kInt8, part, ScaleOf::kTensor, one,
                  RoundingNoise{.key = 4, .location = 3, .elements = elements}, out);
    return out;
  };
  const Values whole = rounded(x, {5, {Positions::first(kLength)}});
  for (const Positions& positions : kRanks) {
    EXPECT_EQ(rounded(rank_rows(x, kBatch, kLength, positions), {5, {positions}}),
              rank_rows(whole, kBatch, kLength, positions));
  }
}

TEST(CopyColumns, MovesAndConverts) {
  const auto ops = cpu_ops(3);
  constexpr int64_t kRows = 50;
  Values from = Values::random({kRows, 37}, 1), to({kRows, 50}, -7);
  HalfValues half_from(from), half_to(to);
  const auto expect = [&](const Values& moved, bool rounded) {
    for (int64_t i = 0; i < moved.size(); ++i) {
      const int64_t column = i % 50 - 11 + 4;
      const bool inside = column >= 4 && column < 4 + 33;
      const float value = inside ? from[i / 50 * 37 + column] : -7;
      ASSERT_EQ(moved[i], rounded ? Bf16::round(value).value() : value) << i;
    }
  };
  ops->copy_columns(from, 4, to, 11, 33);
  expect(to, false);
  ops->copy_columns(from, 4, half_to, 11, 33);
  expect(half_to.widened(), true);
  ops->copy_columns(half_from, 4, to, 11, 33);
  expect(to, true);
  EXPECT_DEATH(ops->copy_columns(from, 5, to, 11, 33), "33 columns from 5 of 37");
}

}  // namespace
}  // namespace muster::trainer
