// Attention over keys that come in blocks, as a ring of ranks sees them, against attention over all
// of them.
#include <limits>
#include <ostream>

#include "tests/unit/trainer_core/ops/sequence_rows.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {
namespace {

struct BlockCase {
  AttentionShape shape;            // shape of the complete sequences
  std::vector<Positions> ranks;    // the positions of each rank
  std::vector<int32_t> documents;  // starts of all documents but the first, in every sequence

  friend std::ostream& operator<<(std::ostream& out, const BlockCase& c) {
    return out << "B" << c.shape.batch << "_S" << c.shape.seq_len << "_H" << c.shape.heads << "_K"
               << c.shape.kv_heads << "_h" << c.shape.head_dim << "_cap" << c.shape.soft_cap
               << "_window" << c.shape.window << "_zero" << c.shape.extra_zero << "_buckets"
               << c.shape.buckets.count << "_ranks" << c.ranks.size() << "_documents"
               << c.documents.size() + 1;
  }
};

// Gives each rank one of `chunks` chunks of `count` positions and its mirror image.
std::vector<Positions> mirrored(int64_t chunks, int64_t count) {
  std::vector<Positions> ranks;
  for (int64_t c = 0; c < chunks / 2; ++c)
    ranks.emplace_back(PositionRun{c * count, count}, PositionRun{(chunks - 1 - c) * count, count});
  return ranks;
}

class AttentionBlocks : public testing::TestWithParam<BlockCase> {
 protected:
  AttentionBlocks() {
    for (int64_t row = 0; row < whole_.rows(); ++row) {
      const auto position = static_cast<int32_t>(row % whole_.seq_len);
      int32_t start = 0;
      for (const int32_t document : GetParam().documents)
        if (document <= position) start = document;
      starts_.push_back(start);
    }
    if (!GetParam().documents.empty())
      whole_.starts = Tensor::i32(starts_.data(), {whole_.batch, whole_.seq_len});
    Scratch scratch(
        std::max(cpu_attention_elements(whole_, 2), cpu_attention_backward_elements(whole_, 2)));
    ops_->attention(whole_, qkv_, bias_, out_, lse_, scratch);
    ops_->attention_backward(whole_, qkv_, bias_, out_, lse_, dout_, dqkv_, dbias_, Accumulate::kNo,
                             scratch);
  }

  AttentionShape rank_shape(const Positions& positions) {
    AttentionShape shape = whole_;
    shape.seq_len = positions.count();
    shape.positions = positions;
    if (GetParam().documents.empty()) return shape;
    rank_starts_.clear();
    for_rank_rows(shape.batch, whole_.seq_len, positions,
                  [&](int64_t, int64_t from) { rank_starts_.push_back(starts_[size_t(from)]); });
    shape.starts = Tensor::i32(rank_starts_.data(), {shape.rows()});
    return shape;
  }
  Values part(const Values& whole, const Positions& positions) const {
    return rank_rows(whole, whole_.batch, whole_.seq_len, positions);
  }
  Values keys(const Values& of_qkv, const Positions& positions) const {
    return rank_rows(of_qkv, whole_.batch, whole_.seq_len, positions, whole_.out_width(),
                     whole_.kv_width());
  }
  // The contribution of this rank's queries to the bias's gradient.
  Values dq_of(const Positions& positions) const {
    return rank_rows(dqkv_, whole_.batch, whole_.seq_len, positions, 0, whole_.out_width());
  }
  // Sets keys that no query of `shape` sees to NaN.
  void spoil_unseen(const AttentionShape& shape, const Positions& positions, Values& keys) const {
    const int64_t width = whole_.kv_width();
    for (int64_t row = 0; row < shape.batch * positions.count(); ++row) {
      const int64_t sequence = row / positions.count();
      const int64_t key = positions.at(row % positions.count());
      bool seen = false;
      for (int64_t i = 0; i < shape.seq_len; ++i) {
        const int64_t query = shape.positions.at(i);
        // Or lies in one tile with a key that is seen.
        seen = seen || (key <= query + 63 && key + 63 >= oldest(sequence, query));
      }
      if (seen) continue;
      for (int64_t i = 0; i < width; ++i) keys[row * width + i] = std::nanf("");
    }
  }
  int64_t oldest(int64_t sequence, int64_t query) const {
    const int64_t window = whole_.window == 0 ? 0 : query - whole_.window + 1;
    return std::max<int64_t>(window,
                             starts_[static_cast<size_t>(sequence * whole_.seq_len + query)]);
  }

  AttentionShape whole_ = GetParam().shape;
  std::vector<int32_t> starts_, rank_starts_;
  std::unique_ptr<Ops> ops_ = cpu_ops(2);
  Values qkv_ = Values::random({whole_.rows(), whole_.qkv_width()}, 1, 2);
  Values bias_ = Values::random({whole_.heads, whole_.buckets.count}, 3, 2);
  Values dout_ = Values::random({whole_.rows(), whole_.out_width()}, 2);
  Values out_{{whole_.rows(), whole_.out_width()}};
  Values lse_{{whole_.batch, whole_.heads, whole_.seq_len}};
  Values dqkv_{{whole_.rows(), whole_.qkv_width()}};
  Values dbias_{{whole_.heads, whole_.buckets.count}};
};

// Merges blocks in any order: each rank begins with its own and continues round the ring.
TEST_P(AttentionBlocks, MergeToTheWhole) {
  const auto& ranks = GetParam().ranks;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const AttentionShape shape = rank_shape(ranks[rank]);
    Values qkv = part(qkv_, ranks[rank]);
    Values out({shape.rows(), shape.out_width()}, -7);
    Values lse({shape.batch, shape.heads, shape.seq_len}, -7);
    for (size_t step = 0; step < ranks.size(); ++step) {
      const Positions& positions = ranks[(rank + ranks.size() - step) % ranks.size()];
      Values block = keys(qkv_, positions);
      spoil_unseen(shape, positions, block);
      Scratch scratch(cpu_attention_elements(shape, positions, 2));
      ops_->attention_block(shape, qkv, {block, positions}, bias_, {out, lse},
                            step == 0 ? Accumulate::kNo : Accumulate::kYes, scratch);
    }
    expect_near(out, as_double(part(out_, ranks[rank])), 3e-6);
    expect_near(lse,
                as_double(rank_lse(lse_, whole_.batch, whole_.heads, whole_.seq_len, ranks[rank])),
                3e-6);
  }
}

TEST_P(AttentionBlocks, GradientsAddUpToTheWhole) {
  const auto& ranks = GetParam().ranks;
  Values dbias({whole_.heads, whole_.buckets.count});
  std::vector<Values> dkv;
  for (const Positions& positions : ranks)
    dkv.emplace_back(
        std::initializer_list<int64_t>{whole_.batch * positions.count(), whole_.kv_width()});
  for (const Positions& queries : ranks) {
    const AttentionShape shape = rank_shape(queries);
    Values qkv = part(qkv_, queries), out = part(out_, queries), dout = part(dout_, queries);
    Values lse = rank_lse(lse_, whole_.batch, whole_.heads, whole_.seq_len, queries);
    Values dq({shape.rows(), shape.out_width()});
    for (size_t other = 0; other < ranks.size(); ++other) {
      Values block = keys(qkv_, ranks[other]);
      spoil_unseen(shape, ranks[other], block);
      Scratch scratch(cpu_attention_backward_elements(shape, ranks[other], 2));
      ops_->attention_block_backward(shape, qkv, {block, ranks[other]}, bias_, out, lse, dout,
                                     {dq, dkv[other], dbias}, scratch);
    }
    expect_near(dq, as_double(dq_of(queries)), 5e-6);
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    expect_near(dkv[rank], as_double(keys(dqkv_, ranks[rank])), 5e-6);
  if (whole_.buckets.exist()) expect_near(dbias, as_double(dbias_), 5e-6);
}

// attention() itself on a rank with a part of the positions, whose queries see only the keys of
// that part.
TEST_P(AttentionBlocks, OwnKeysAreAttentionOfThePart) {
  for (const Positions& positions : GetParam().ranks) {
    const AttentionShape shape = rank_shape(positions);
    Values qkv = part(qkv_, positions), block = keys(qkv_, positions);
    Values out({shape.rows(), shape.out_width()}), lse({shape.batch, shape.heads, shape.seq_len});
    Values sum = out, sum_lse = lse;
    Scratch scratch(cpu_attention_backward_elements(shape, 2) + cpu_attention_elements(shape, 2));
    ops_->attention(shape, qkv, bias_, out, lse, scratch);
    ops_->attention_block(shape, qkv, {block, positions}, bias_, {sum, sum_lse}, Accumulate::kNo,
                          scratch);
    EXPECT_EQ(out, sum);  // one kernel: the same bits
    EXPECT_EQ(lse, sum_lse);

    Values dout = part(dout_, positions), dqkv({shape.rows(), shape.qkv_width()}), dq = out;
    Values dkv = block, dbias = bias_;
    ops_->fill(dq, 0);
    ops_->fill(dkv, 0);
    ops_->attention_backward(shape, qkv, bias_, out, lse, dout, dqkv, dbias, Accumulate::kNo,
                             scratch);
    ops_->attention_block_backward(shape, qkv, {block, positions}, bias_, out, lse, dout,
                                   {dq, dkv, dbias}, scratch);
    for (int64_t row = 0; row < shape.rows(); ++row) {
      for (int64_t i = 0; i < shape.qkv_width(); ++i) {
        const int64_t kv = i - shape.out_width();
        ASSERT_EQ(dqkv[row * shape.qkv_width() + i],
                  kv < 0 ? dq[row * shape.out_width() + i] : dkv[row * shape.kv_width() + kv]);
      }
    }
  }
}

// bf16 differs from fp32 on the same rounded inputs only by the rounding in its GEMMs, for any
// number of blocks.
TEST_P(AttentionBlocks, Bf16) {
  const auto& ranks = GetParam().ranks;
  for (const Positions& queries : ranks) {
    const AttentionShape shape = rank_shape(queries);
    HalfValues qkv(part(qkv_, queries)), dout(part(dout_, queries)), out(part(out_, queries));
    Values lse = rank_lse(lse_, whole_.batch, whole_.heads, whole_.seq_len, queries);
    Values sum({shape.rows(), shape.out_width()}), sum_lse = lse, dq = sum, dbias = bias_;
    for (size_t other = 0; other < ranks.size(); ++other) {
      HalfValues block(keys(qkv_, ranks[other]));
      Values dkv = keys(qkv_, ranks[other]);
      Scratch scratch(cpu_attention_backward_elements(shape, ranks[other], 2));
      ops_->attention_block(shape, qkv, {block, ranks[other]}, bias_, {sum, sum_lse},
                            other == 0 ? Accumulate::kNo : Accumulate::kYes, scratch);
      ops_->attention_block_backward(shape, qkv, {block, ranks[other]}, bias_, out, lse, dout,
                                     {dq, dkv, dbias}, scratch);
    }
    expect_near(sum, as_double(part(out_, queries)), 3e-2);
    expect_near(dq, as_double(dq_of(queries)), 6e-2);
  }
}

// A row without visible keys is marked as such, and the first block that it sees replaces it.
TEST(AttentionBlock, OfKeysThatNoQuerySees) {
  const auto ops = cpu_ops(1);
  AttentionShape shape{.batch = 1, .seq_len = 3, .heads = 1, .kv_heads = 1, .head_dim = 2};
  shape.positions = Positions(PositionRun{4, 3});
  Values qkv = Values::random({3, 6}, 1), late({5, 4}, std::nanf("")), early({4, 4}, 1);
  Values out({3, 2}, -7), lse({1, 1, 3}, -7);
  Scratch scratch(cpu_attention_backward_elements(shape, Positions::first(16), 1));
  ops->attention_block(shape, qkv, {late, Positions(PositionRun{7, 5})}, {}, {out, lse},
                       Accumulate::kNo, scratch);
  EXPECT_EQ(out, Values({3, 2}, 0));
  EXPECT_EQ(lse, Values({3}, -1e30F));
  ops->attention_block(shape, qkv, {early, Positions::first(4)}, {}, {out, lse}, Accumulate::kYes,
                       scratch);
  for (int64_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], 1, 1e-6);
}

TEST(AttentionBlockDeathTest, RunsThatOverlap) {
  const auto ops = cpu_ops(1);
  AttentionShape shape{.batch = 1, .seq_len = 3, .heads = 1, .kv_heads = 1, .head_dim = 2};
  Values qkv({3, 6}), block({3, 4}), out({3, 2}), lse({1, 1, 3});
  EXPECT_DEATH(ops->attention_block(shape, qkv, {block, Positions(PositionRun{1, 3})}, {},
                                    {out, lse}, Accumulate::kNo, {}),
               "queries 0 \\+ 3 overlap keys 1 \\+ 3");
}

const std::vector<BlockCase> kBlockCases = {
    BlockCase{{1, 12, 1, 1, 2}, mirrored(4, 3), {}},
    BlockCase{{2, 12, 4, 2, 6}, mirrored(4, 3), {}},                    // groups
    BlockCase{{1, 320, 2, 1, 8}, mirrored(4, 80), {}},                  // tiles and part of one
    BlockCase{{1, 512, 1, 1, 20}, mirrored(8, 64), {}},                 // exactly a tile
    BlockCase{{1, 400, 2, 1, 8, 0, 0, 17}, mirrored(4, 100), {}},       // windows
    BlockCase{{1, 400, 2, 1, 8, 0, 0, 150}, mirrored(4, 100), {}},      // longer than a chunk
    BlockCase{{1, 400, 1, 1, 8, 0, 2, 0, true}, mirrored(4, 100), {}},  // a cap and a zero
    BlockCase{
        {2, 300, 2, 1, 8, 0, 0, 0, true, {8, 20}}, mirrored(6, 50), {}},  // relative positions
    BlockCase{{1, 400, 4, 2, 8, 1, 2, 120, true, {32, 128}}, mirrored(4, 100), {90, 100, 250}},
    BlockCase{{2, 400, 2, 1, 8}, mirrored(4, 100), {1, 40, 99, 101, 300}},
    BlockCase{
        {1, 150, 2, 1, 64},
        {Positions({100, 20}, {7, 60}), Positions({67, 33}, {0, 7}), Positions({120, 30}, {})},
        {}}};  // any runs
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionBlocks, testing::ValuesIn(kBlockCases));

}  // namespace
}  // namespace muster::trainer
