#include "trainer_core/parallel/ulysses.h"

#include <array>

#include "tests/unit/trainer_core/ops/sequence_rows.h"
#include "tests/unit/trainer_core/parallel/local_ranks.h"
#include "trainer_core/model/token_layout.h"

namespace muster::trainer {
namespace {

constexpr int64_t kBatch = 3, kUlyssesLength = 24, kHeadDim = 5, kHeads = 8, kKvHeads = 4;
constexpr std::array<int64_t, 3> kQkv = {kHeads * kHeadDim, kKvHeads* kHeadDim, kKvHeads* kHeadDim};
constexpr std::array<int64_t, 1> kContext = {kHeads * kHeadDim};

class Lengths : public testing::TestWithParam<int> {};

// Every number is where its position and its head are, on the way there and on the way back.
TEST_P(Lengths, ForHeads) {
  for (const auto& groups : {std::span<const int64_t>(kQkv), std::span<const int64_t>(kContext)}) {
    const int64_t width = std::accumulate(groups.begin(), groups.end(), int64_t{0});
    const Values whole = Values::random({kBatch * kUlyssesLength, width}, 1);
    for (const bool half : {false, true}) {
      on_local_ranks(GetParam(), [&](const LocalRank& rank) {
        const int ranks = rank.group.size();
        const Positions own =
            sequence_positions(Positions::first(kUlyssesLength), {rank.group.rank(), ranks});
        const Values positions = rank_rows(whole, kBatch, kUlyssesLength, own);
        Values heads({kBatch * kUlyssesLength, width / ranks});
        int64_t column = 0;
        for (const int64_t group : groups) {
          const int64_t part = group / ranks;
          for (int64_t i = 0; i < kBatch * kUlyssesLength * part; ++i) {
            const int64_t row = i / part;
            heads[row * (width / ranks) + column / ranks + i % part] =
                whole[row * width + column + rank.group.rank() * part + i % part];
          }
          column += group;
        }
        Ulysses ulysses(rank.ops, rank.group, kBatch);
        const auto there_and_back = [&](auto from, auto to, auto back, auto staging) {
          ASSERT_TRUE(ulysses.to_heads(groups, from, to, staging, "qkv").ok());
          ASSERT_TRUE(ulysses.to_positions(groups, to, back, staging, "dqkv").ok());
          if constexpr (std::is_same_v<decltype(to), Values>) {
            EXPECT_EQ(to, heads);
            EXPECT_EQ(back, positions);
          } else {
            EXPECT_EQ(to.widened(), HalfValues(heads).widened());
            EXPECT_EQ(back.widened(), HalfValues(positions).widened());
          }
        };
        const Values empty({kBatch * kUlyssesLength / ranks, width}), staging({2 * empty.size()});
        if (half) {
          there_and_back(HalfValues(positions), HalfValues(heads), HalfValues(empty),
                         HalfValues(staging));
        } else {
          there_and_back(positions, Values({kBatch * kUlyssesLength, width / ranks}), empty,
                         staging);
        }
        const auto sent = static_cast<int64_t>(rank.group.sent(CollectiveKind::kAllToAll).total);
        EXPECT_EQ(sent, 2 * empty.size() * (half ? 2 : 4) * (ranks - 1) / ranks);
      });
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, Lengths, testing::Values(1, 2, 4));

}  // namespace
}  // namespace muster::trainer
