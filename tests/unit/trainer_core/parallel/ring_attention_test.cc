// A ring of ranks against one rank that has the whole sequence.
#include "trainer_core/parallel/ring_attention.h"

#include <latch>
#include <ostream>

#include "tests/unit/trainer_core/ops/sequence_rows.h"
#include "tests/unit/trainer_core/parallel/local_ranks.h"
#include "trainer_core/model/token_layout.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {
namespace {

struct RingCase {
  AttentionShape shape;
  int ranks;
  std::vector<int32_t> documents = {};

  friend std::ostream& operator<<(std::ostream& out, const RingCase& c) {
    return out << "S" << c.shape.seq_len << "_H" << c.shape.heads << "_K" << c.shape.kv_heads
               << "_window" << c.shape.window << "_buckets" << c.shape.buckets.count << "_ranks"
               << c.ranks << "_documents" << c.documents.size() + 1;
  }
};

// Memory of a rank's ring, of exactly the planned sizes.
struct RingMemory {
  RingMemory(const AttentionShape& shape, DType dtype, int ranks)
      : sizes(ring_sizes(shape, dtype, ranks, 1, /*training=*/true)),
        blocks(static_cast<size_t>(2 * sizes.block) * dtype_bytes(dtype)),
        numbers(static_cast<size_t>(sizes.sums + sizes.gradients), std::nanf("")),
        scratch(sizes.workspace),
        buffers{{blocks.data(), blocks.data() + blocks.size() / 2},
                numbers.data(),
                numbers.data() + sizes.sums,
                scratch} {}

  RingSizes sizes;
  std::vector<std::byte> blocks;
  std::vector<float> numbers;
  Scratch scratch;
  RingBuffers buffers;
};

class Ring : public testing::TestWithParam<RingCase> {
 protected:
  Ring() {
    for (int64_t row = 0; row < whole_.rows(); ++row) {
      int32_t start = 0;
      for (const int32_t document : GetParam().documents)
        if (document <= row % whole_.seq_len) start = document;
      starts_.push_back(start);
    }
    if (!GetParam().documents.empty()) whole_.starts = Tensor::i32(starts_.data(), {whole_.rows()});
    const auto ops = cpu_ops(2);
    Scratch scratch(
        std::max(cpu_attention_elements(whole_, 2), cpu_attention_backward_elements(whole_, 2)));
    ops->attention(whole_, qkv_, bias_, out_, lse_, scratch);
    ops->attention_backward(whole_, qkv_, bias_, out_, lse_, dout_, dqkv_, dbias_, Accumulate::kNo,
                            scratch);
  }

  Positions positions(const LocalRank& rank) const {
    return context_positions(whole_.seq_len, {rank.group.rank(), rank.group.size()});
  }
  // `starts` is memory of the shape.
  AttentionShape rank_shape(const Positions& positions, std::vector<int32_t>& starts) const {
    AttentionShape shape = whole_;
    shape.seq_len = positions.count();
    shape.positions = positions;
    if (GetParam().documents.empty()) return shape;
    for_rank_rows(shape.batch, whole_.seq_len, positions, [&](int64_t, int64_t from) {
      starts.push_back(starts_[static_cast<size_t>(from)]);
    });
    shape.starts = Tensor::i32(starts.data(), {shape.rows()});
    return shape;
  }
  Values part(const Values& whole, const Positions& positions) const {
    return rank_rows(whole, whole_.batch, whole_.seq_len, positions);
  }

  AttentionShape whole_ = GetParam().shape;
  std::vector<int32_t> starts_;
  Values qkv_ = Values::random({whole_.rows(), whole_.qkv_width()}, 1, 2);
  Values bias_ = Values::random({whole_.heads, whole_.buckets.count}, 3, 2);
  Values dout_ = Values::random({whole_.rows(), whole_.out_width()}, 2);
  Values out_{{whole_.rows(), whole_.out_width()}};
  Values lse_{{whole_.batch, whole_.heads, whole_.seq_len}};
  Values dqkv_{{whole_.rows(), whole_.qkv_width()}};
  Values dbias_{{whole_.heads, whole_.buckets.count}};
};

TEST_P(Ring, IsAttentionOfTheWholeSequence) {
  std::vector<Values> dbias(static_cast<size_t>(GetParam().ranks), Values({dbias_.size()}, 3));
  on_local_ranks(GetParam().ranks, [&](const LocalRank& rank) {
    std::vector<int32_t> starts;
    const AttentionShape shape = rank_shape(positions(rank), starts);
    RingMemory memory(shape, DType::kF32, rank.group.size());
    Values qkv = part(qkv_, shape.positions), dout = part(dout_, shape.positions), bias = bias_;
    Values out({shape.rows(), shape.out_width()}), dqkv({shape.rows(), shape.qkv_width()});
    Values lse({shape.batch, shape.heads, shape.seq_len});
    RingAttention ring(rank.ops, rank.group, rank.stream);
    const RingLayer layer{shape, qkv, bias, out, lse, memory.buffers, "layer 0 attention ring"};
    ASSERT_TRUE(ring.forward(layer).ok());
    expect_near(out, as_double(part(out_, shape.positions)), 1e-5);
    for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes})
      ASSERT_TRUE(ring.backward(layer, dout, dqkv, dbias[rank.index()], accumulate).ok());
    expect_near(dqkv, as_double(part(dqkv_, shape.positions)), 1e-5);

    // The sent bytes by the header's formula.
    const auto ranks = static_cast<uint64_t>(rank.group.size());
    const uint64_t block = 4 * static_cast<uint64_t>(shape.rows() * shape.kv_width());
    EXPECT_EQ(rank.group.sent(CollectiveKind::kSendRecv).total,
              ranks == 1 ? 0 : block * ((ranks - 1) + 2 * ((ranks - 1) + ranks)));
  });
  if (!whole_.buckets.exist()) return;
  std::vector<double> sum(static_cast<size_t>(dbias_.size()));
  for (const Values& of_rank : dbias)
    for (int64_t i = 0; i < dbias_.size(); ++i) sum[static_cast<size_t>(i)] += of_rank[i] / 2;
  expect_near(dbias_, sum, 1e-5);
}

// Rounded once at the end, however many ranks there are.
TEST_P(Ring, OfBf16) {
  on_local_ranks(GetParam().ranks, [&](const LocalRank& rank) {
    std::vector<int32_t> starts;
    const AttentionShape shape = rank_shape(positions(rank), starts);
    RingMemory memory(shape, DType::kBf16, rank.group.size());
    HalfValues qkv(part(qkv_, shape.positions)), dout(part(dout_, shape.positions));
    HalfValues out(part(dout_, shape.positions)), dqkv(part(qkv_, shape.positions));
    Values lse({shape.batch, shape.heads, shape.seq_len}), bias = bias_, dbias = dbias_;
    RingAttention ring(rank.ops, rank.group, rank.stream);
    const RingLayer layer{shape, qkv, bias, out, lse, memory.buffers, "layer 0 attention ring"};
    ASSERT_TRUE(ring.forward(layer).ok());
    expect_near(out.widened(), as_double(part(out_, shape.positions)), 3e-2);
    ASSERT_TRUE(ring.backward(layer, dout, dqkv, dbias, Accumulate::kNo).ok());
    expect_near(dqkv.widened(), as_double(part(dqkv_, shape.positions)), 5e-2);
  });
}

std::vector<RingCase> ring_cases() {
  std::vector<RingCase> all;
  for (const int ranks : {1, 2, 4, 8}) {
    all.push_back({{1, 320, 4, 2, 8}, ranks});
    all.push_back({{2, 320, 2, 1, 8, 0, 0, 7}, ranks});          // a window shorter than a chunk
    all.push_back({{1, 320, 2, 2, 8, 0, 0, 200, true}, ranks});  // and a longer one
    all.push_back({{2, 320, 2, 1, 8, 0, 1.5}, ranks, {1, 19, 20, 170, 310}});
  }
  all.push_back({{1, 512, 4, 2, 16, 0, 2, 150, true, {32, 128}}, 4, {64, 100, 300}});
  all.push_back({{3, 48, 2, 1, 6, 0, 0, 0, false, {8, 20}}, 2});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Shapes, Ring, testing::ValuesIn(ring_cases()));

// Every rank learns of it, and no buffer is touched after the call.
TEST(RingFailure, ALostPeer) {
  std::latch forwarded(3);
  on_local_ranks(3, [&](const LocalRank& rank) {
    AttentionShape shape{.batch = 1, .seq_len = 4, .heads = 1, .kv_heads = 1, .head_dim = 2};
    shape.positions = context_positions(12, {rank.group.rank(), 3});
    RingMemory memory(shape, DType::kF32, rank.group.size());
    Values qkv({4, 6}, 1), out({4, 2}), lse({1, 1, 4}), dqkv = qkv;
    RingAttention ring(rank.ops, rank.group, rank.stream);
    const RingLayer layer{shape, qkv, {}, out, lse, memory.buffers, "ring"};
    const absl::Status forward = ring.forward(layer);
    forwarded.arrive_and_wait();
    ASSERT_TRUE(forward.ok()) << forward;
    if (rank.index() == 1) return rank.group.abort();
    EXPECT_FALSE(ring.backward(layer, out, dqkv, {}, Accumulate::kNo).ok());
  });
}

}  // namespace
}  // namespace muster::trainer
