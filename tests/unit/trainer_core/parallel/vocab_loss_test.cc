// Slices of the vocabulary against all of it.
#include "trainer_core/parallel/vocab_loss.h"

#include <array>

#include "tests/unit/trainer_core/ops/sequence_rows.h"
#include "tests/unit/trainer_core/parallel/local_ranks.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {
namespace {

constexpr int64_t kRows = 23, kVocab = 101;
// First ids of slices of unequal sizes.
const std::vector<std::vector<int64_t>> kSlices = {{0}, {0, 1}, {0, 40, 99}, {0, 16, 32, 80}};

struct Slice {
  Slice(const std::vector<int64_t>& begins, size_t rank)
      : first(begins[rank]), end(rank + 1 < begins.size() ? begins[rank + 1] : kVocab) {}
  int64_t first, end;

  int64_t count() const { return end - first; }
  VocabularySlice slice() const { return {first, kVocab}; }
};

Values columns_of(const Values& matrix, const Slice& slice) {
  return rank_rows(matrix, 1, kRows, Positions::first(kRows), slice.first, slice.count());
}

class SlicedLoss : public testing::TestWithParam<LossShape> {};

TEST_P(SlicedLoss, IsTheLossOfAllIds) {
  // Far apart, so that a slice alone would overflow without the others' largest.
  const Values logits = Values::random({kRows, kVocab}, 1, 120);
  Ids ids(kRows, kVocab, 2);
  Values weights = Values::random({kRows}, 3), losses({kRows}), gradient = logits;
  cpu_ops(1)->cross_entropy_backward(GetParam(), gradient, ids, weights, losses, gradient);
  for (const auto& begins : kSlices) {
    const int ranks = static_cast<int>(begins.size());
    std::vector<Values> of_rank(begins.size(), Values({kRows}));
    on_local_ranks(ranks, [&](const LocalRank& rank) {
      const Slice slice(begins, rank.index());
      Ids targets = ids;
      Values part = columns_of(logits, slice), part2 = part, own_weights = weights, again({kRows});
      Values sums({vocab_loss_sums(kRows, ranks)}, std::nanf(""));
      SlicedLogits rows{slice.slice(), part2, {}, targets, own_weights, again, sums};
      ASSERT_TRUE(vocabulary_loss(rank.ops, rank.group, GetParam(), rows, "loss").ok());
      of_rank[rank.index()] = again;
      Values unrounded = part;
      rows.logits = rows.d_logits = part;
      ASSERT_TRUE(vocabulary_loss_backward(rank.ops, rank.group, GetParam(), rows, "loss").ok());
      EXPECT_EQ(again, of_rank[rank.index()]);
      expect_near(part, as_double(columns_of(gradient, slice)), 1e-5);
      HalfValues half(unrounded);
      rows.logits = unrounded, rows.d_logits = half;
      ASSERT_TRUE(vocabulary_loss_backward(rank.ops, rank.group, GetParam(), rows, "loss").ok());
      EXPECT_EQ(half.widened(), HalfValues(part).widened());
      EXPECT_EQ(rank.group.sent(CollectiveKind::kAllGather).total,
                3U * 12U * static_cast<uint64_t>(kRows * (ranks - 1)));
    });
    expect_near(of_rank[0], as_double(losses), 1e-6);
    for (const Values& others : of_rank) EXPECT_EQ(others, of_rank[0]);
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, SlicedLoss,
                         testing::Values(LossShape{}, LossShape{30, 0}, LossShape{0, 1e-2},
                                         LossShape{15, 1e-3}));

// Each token's row comes from one slice, and its gradient goes to it.
TEST(SlicedEmbedding, SumsToTheWhole) {
  constexpr int64_t kWidth = 7;
  const auto ops = cpu_ops(2);
  Ids tokens(kRows, kVocab, 1);
  Values table = Values::random({kVocab, kWidth}, 2), whole({kRows, kWidth});
  Values dout = Values::random({kRows, kWidth}, 3), dtable({kVocab, kWidth}, 2);
  ops->embedding(tokens, table, {}, 2.5, whole);
  Scratch keys(row_sort_elements(kRows));
  ops->embedding_backward(tokens, dout, {}, 2.5, dtable, keys);
  for (const auto& begins : kSlices) {
    Values sum({kRows, kWidth});
    HalfValues half(whole);
    for (size_t rank = 0; rank < begins.size(); ++rank) {
      const Slice slice(begins, rank);
      const auto rows = [&](Values& matrix) {
        return Tensor::f32(&matrix[slice.first * kWidth], {slice.count(), kWidth});
      };
      Values part({kRows, kWidth}, -7), gradient({kVocab, kWidth}, 2);
      ops->embedding(tokens, rows(table), slice.slice(), 2.5, part);
      ops->add(sum, part, sum);
      ops->embedding(tokens, rows(table), slice.slice(), 2.5, half);
      EXPECT_EQ(half.widened(), HalfValues(part).widened());
      ops->embedding_backward(tokens, dout, slice.slice(), 2.5, rows(gradient), keys);
      for (int64_t i = 0; i < gradient.size(); ++i) {
        const bool own = i / kWidth >= slice.first && i / kWidth < slice.end;
        ASSERT_EQ(gradient[i], own ? dtable[i] : 2);
      }
    }
    EXPECT_EQ(sum, whole);
  }
}

}  // namespace
}  // namespace muster::trainer
