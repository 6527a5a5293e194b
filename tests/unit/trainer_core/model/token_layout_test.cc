#include "trainer_core/model/token_layout.h"

#include <numeric>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

TEST(TokenLayout, ContextRanksHaveAChunkAndItsMirrorImage) {
  EXPECT_EQ(context_positions(12, {0, 1}), Positions::first(12));
  EXPECT_EQ(context_positions(24, {0, 3}), Positions({0, 4}, {20, 4}));
  EXPECT_EQ(context_positions(24, {1, 3}), Positions({4, 4}, {16, 4}));
  EXPECT_EQ(context_positions(24, {2, 3}), Positions::first(24).slice(8, 8));  // adjacent chunks
}

TEST(TokenLayout, TheSequenceAxisSplitsAContextRanksPositions) {
  const Positions whole = context_positions(24, {0, 3});
  EXPECT_EQ(sequence_positions(whole, {0, 1}), whole);
  EXPECT_EQ(sequence_positions(whole, {1, 4}), Positions(PositionRun{2, 2}));
  EXPECT_EQ(sequence_positions(Positions({0, 3}, {21, 3}), {0, 1}).at(4), 22);
  EXPECT_EQ(sequence_positions(Positions({0, 3}, {9, 5}), {1, 4}), Positions({2, 1}, {9, 1}));
}

// Gathered in any order of ranks, every token is found where its rank put it.
TEST(TokenLayout, GatheredRowsBecomeWholeSequences) {
  constexpr int64_t kBatch = 3, kLength = 24;
  for (const int context : {1, 2, 3}) {
    for (const int sequence : {1, 2}) {
      for (const int tensor : {1, 2, 3}) {
        std::vector<TokenRows> ranks;
        for (int i = 0; i < context * sequence * tensor; ++i) {
          const Positions positions =
              sequence_positions(context_positions(kLength, {i / (sequence * tensor), context}),
                                 {i / tensor % sequence, sequence});
          ranks.push_back(tensor_rows(kBatch, positions, {i % tensor, tensor}));
        }
        const int64_t each = kBatch * kLength / static_cast<int64_t>(ranks.size());
        std::vector<int64_t> gathered;
        for (const TokenRows& rows : ranks)
          for (int64_t row = 0; row < each; ++row)
            gathered.push_back(rows.sequence(row) * kLength + rows.position(row));
        const std::vector<int32_t> order = gathered_order(kBatch, kLength, ranks, each);
        for (size_t token = 0; token < order.size(); ++token)
          ASSERT_EQ(gathered[static_cast<size_t>(order[token])], static_cast<int64_t>(token));
      }
    }
  }
}

TEST(TokenLayoutDeathTest, SizesThatDoNotDivideEndTheProcess) {
  EXPECT_DEATH(context_positions(12, {0, 4}), "12 positions in 8 chunks");
  EXPECT_DEATH(sequence_positions(Positions::first(5), {0, 2}), "5 positions on 2 ranks");
  EXPECT_DEATH(tensor_rows(1, Positions::first(5), {0, 2}), "5 rows on 2 ranks");
  EXPECT_DEATH(gathered_order(1, 4, {{Positions::first(2)}, {Positions::first(2)}}, 2),
               "token 0 of 4 is on two ranks");
}

}  // namespace
}  // namespace muster::trainer
