// Attention against a direct fp64 reference, and its gradients against differences of that reference.
#include <algorithm>
#include <iterator>
#include <ostream>

#include "tests/unit/trainer_core/ops/ops_fixture.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {
namespace {

struct Reference {
  std::vector<double> out, lse;
};

// `bias` (H, buckets), or nothing.
Reference reference(const AttentionShape& s, const std::vector<double>& qkv,
                    const std::vector<double>& bias) {
  Reference result{std::vector<double>(static_cast<size_t>(s.rows() * s.out_width())),
                   std::vector<double>(static_cast<size_t>(s.rows() * s.heads))};
  const auto at = [&](int64_t b, int64_t position, int64_t column) {
    return qkv[static_cast<size_t>((b * s.seq_len + position) * s.qkv_width() + column)];
  };
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t head = 0; head < s.heads; ++head) {
      const int64_t kv = head / (s.heads / s.kv_heads);
      const int64_t q0 = head * s.head_dim, k0 = (s.heads + kv) * s.head_dim;
      const int64_t v0 = k0 + s.kv_heads * s.head_dim;
      for (int64_t i = 0; i < s.seq_len; ++i) {
        std::vector<double> p;
        int64_t oldest = s.window == 0 ? 0 : std::max<int64_t>(0, i - s.window + 1);
        if (s.starts.data != nullptr)
          oldest = std::max<int64_t>(oldest, s.starts.i32()[b * s.seq_len + i]);
        for (int64_t j = oldest; j <= i; ++j) {
          double dot = 0;
          for (int64_t e = 0; e < s.head_dim; ++e) dot += at(b, i, q0 + e) * at(b, j, k0 + e);
          dot *= s.scale > 0 ? s.scale : 1 / std::sqrt(static_cast<double>(s.head_dim));
          if (s.buckets.exist())
            dot += bias[static_cast<size_t>(head * s.buckets.count + s.buckets.of(i - j))];
          if (s.soft_cap > 0) dot = s.soft_cap * std::tanh(dot / s.soft_cap);
          p.push_back(std::exp(dot));
        }
        const double total = std::accumulate(p.begin(), p.end(), s.extra_zero ? 1.0 : 0.0);
        result.lse[static_cast<size_t>((b * s.heads + head) * s.seq_len + i)] = std::log(total);
        for (int64_t e = 0; e < s.head_dim; ++e) {
          double sum = 0;
          for (int64_t j = oldest; j <= i; ++j)
            sum += p[static_cast<size_t>(j - oldest)] * at(b, j, v0 + e);
          result.out[static_cast<size_t>((b * s.seq_len + i) * s.out_width() + q0 + e)] =
              sum / total;
        }
      }
    }
  }
  return result;
}

struct Case {
  AttentionShape shape;
  int threads;
  std::vector<int32_t> documents = {};  // where those behind the first begin in every sequence

  friend std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << "B" << c.shape.batch << "_S" << c.shape.seq_len << "_H" << c.shape.heads << "_K"
               << c.shape.kv_heads << "_h" << c.shape.head_dim << "_scale" << c.shape.scale
               << "_cap" << c.shape.soft_cap << "_window" << c.shape.window << "_zero"
               << c.shape.extra_zero << "_buckets" << c.shape.buckets.count << "_documents"
               << c.documents.size() + 1 << "_threads" << c.threads;
  }
};

class Attention : public testing::TestWithParam<Case> {
 protected:
  Attention() {
    if (GetParam().documents.empty()) return;
    for (int64_t row = 0; row < shape_.rows(); ++row) {
      int32_t start = 0;
      // A sequence's documents begin one place later than those of the sequence before.
      for (const int32_t document : GetParam().documents) {
        const auto begin = document + static_cast<int32_t>(row / shape_.seq_len);
        if (begin <= row % shape_.seq_len) start = begin;
      }
      starts_.push_back(start);
    }
    shape_.starts = Tensor::i32(starts_.data(), {shape_.batch, shape_.seq_len});
  }
  const AttentionShape& shape() const { return shape_; }

  AttentionShape shape_ = GetParam().shape;
  std::vector<int32_t> starts_;

  std::unique_ptr<Ops> ops_ = cpu_ops(GetParam().threads);
  Values qkv_ = Values::random({shape().rows(), shape().qkv_width()}, 1, 2);
  Values bias_ = Values::random({shape().heads, shape().buckets.count}, 3, 2);
  Values out_{{shape().rows(), shape().out_width()}};
  Values lse_{{shape().batch, shape().heads, shape().seq_len}};
};

class CachedAttention : public Attention {};  // a cache is one document's
class RelativeAttention : public Attention {};

TEST_P(Attention, Forward) {
  Scratch scratch(cpu_attention_elements(shape(), GetParam().threads));
  ops_->attention(shape(), qkv_, bias_, out_, lse_, scratch);
  const Reference expected = reference(shape(), as_double(qkv_), as_double(bias_));
  expect_near(out_, expected.out, 3e-6);
  expect_near(lse_, expected.lse, 3e-6);
}

// The same numbers, whatever the pieces in which a sequence arrives.
TEST_P(CachedAttention, InPieces) {
  const AttentionShape& whole = shape();
  constexpr int64_t kSpare = 3;  // positions of the cache that nobody may look at
  const int64_t capacity = whole.seq_len + kSpare;
  const float nan = std::nanf("");
  Values keys({whole.batch, whole.kv_heads, capacity, whole.head_dim}, nan), values = keys;
  Scratch scratch(cpu_attention_cached_elements(whole, capacity, GetParam().threads));
  const auto rows_of = [&](Values& from, int64_t first, int64_t count, int64_t width, bool back,
                           Values& to) {
    for (int64_t b = 0; b < whole.batch; ++b) {
      for (int64_t i = 0; i < count * width; ++i) {
        const int64_t in_whole = (b * whole.seq_len + first) * width + i;
        const int64_t in_piece = b * count * width + i;
        back ? from[in_whole] = to[in_piece] : to[in_piece] = from[in_whole];
      }
    }
  };
  // A prompt, then single tokens, then the rest.
  for (int64_t first = 0, turn = 0; first < whole.seq_len; ++turn) {
    AttentionShape piece = whole;
    const int64_t wanted = turn == 0 ? 5 : turn < 4 ? 1 : 60;
    piece.seq_len = std::min(wanted, whole.seq_len - first);
    Values qkv({piece.rows(), piece.qkv_width()}), out({piece.rows(), piece.out_width()}, nan);
    rows_of(qkv_, first, piece.seq_len, piece.qkv_width(), false, qkv);
    ops_->attention_cached(piece, first, qkv, bias_, {keys, values}, out, scratch);
    rows_of(out_, first, piece.seq_len, piece.out_width(), true, out);
    first += piece.seq_len;
  }
  expect_near(out_, reference(whole, as_double(qkv_), as_double(bias_)).out, 3e-6);
}

// Every gradient of small shapes; of large ones the derivative along 20 coordinates.
TEST_P(Attention, Backward) {
  Scratch scratch(std::max(cpu_attention_elements(shape(), GetParam().threads),
                           cpu_attention_backward_elements(shape(), GetParam().threads)));
  ops_->attention(shape(), qkv_, bias_, out_, lse_, scratch);
  Values dout = Values::random({shape().rows(), shape().out_width()}, 2);
  Values dqkv({shape().rows(), shape().qkv_width()}, -7);
  Values dbias({shape().heads, shape().buckets.count}, -7);
  ops_->attention_backward(shape(), qkv_, bias_, out_, lse_, dout, dqkv, dbias, Accumulate::kNo,
                           scratch);
  const auto weighted = [&](const std::vector<double>& qkv, const std::vector<double>& bias) {
    const std::vector<double> out = reference(shape(), qkv, bias).out;
    double sum = 0;
    for (int64_t j = 0; j < dout.size(); ++j) sum += out[static_cast<size_t>(j)] * dout[j];
    return sum;
  };

  const std::vector<double> start = as_double(qkv_);
  const int64_t stride = std::max<int64_t>(1, qkv_.size() / 20);
  double largest = 0;
  for (int64_t i = 0; i < dqkv.size(); ++i) largest = std::max(largest, std::abs(double{dqkv[i]}));
  for (int64_t i = 0; i < qkv_.size(); i += stride) {
    const double slope =
        derivative({start[static_cast<size_t>(i)]}, [&](const std::vector<double>& x) {
          std::vector<double> moved = start;
          moved[static_cast<size_t>(i)] = x[0];
          return weighted(moved, as_double(bias_));
        })[0];
    ASSERT_NEAR(dqkv[i], slope, 2e-5 * largest) << "element " << i;
  }
  if (!shape().buckets.exist()) return;
  expect_near(dbias,
              derivative(as_double(bias_),
                         [&](const std::vector<double>& bias) { return weighted(start, bias); }),
              2e-5);
}

// Sums over sequences are made in an order of their own, so the bits do not depend on threads; and a second batch's are added.
TEST_P(RelativeAttention, BiasGradientsOfAnyThreadsAreTheSame) {
  Values dout = Values::random({shape().rows(), shape().out_width()}, 2);
  const auto gradient = [&](int threads, Values dbias, Accumulate accumulate) {
    const auto ops = cpu_ops(threads);
    Scratch scratch(cpu_attention_backward_elements(shape(), threads));
    Values dqkv({shape().rows(), shape().qkv_width()});
    ops->attention_backward(shape(), qkv_, bias_, out_, lse_, dout, dqkv, dbias, accumulate,
                            scratch);
    return dbias;
  };
  Scratch scratch(cpu_attention_elements(shape(), GetParam().threads));
  ops_->attention(shape(), qkv_, bias_, out_, lse_, scratch);
  const Values once = gradient(1, bias_, Accumulate::kNo);
  for (const int threads : {2, 3, 8}) EXPECT_EQ(gradient(threads, bias_, Accumulate::kNo), once);
  const Values twice = gradient(2, once, Accumulate::kYes);
  for (int64_t i = 0; i < once.size(); ++i) EXPECT_EQ(twice[i], once[i] + once[i]);
}

const std::vector<Case> kCases = {
    Case{{1, 1, 1, 1, 2}, 1},     // one position
    Case{{2, 5, 4, 1, 6}, 2},     // one key/value head
    Case{{2, 7, 4, 2, 10}, 2},    // groups
    Case{{1, 9, 3, 3, 16}, 1},    // no groups
    Case{{1, 64, 2, 1, 8}, 1},    // exactly one tile
    Case{{1, 65, 1, 1, 20}, 3},   // one row more
    Case{{1, 150, 2, 2, 64}, 2},  // several tiles
    Case{{1, 33, 1, 1, 80}, 1}, Case{{1, 70, 2, 1, 128}, 2},
    Case{{1, 70, 2, 1, 8, 0.7}, 1},         // a scale
    Case{{2, 70, 2, 1, 8, 0, 1.5}, 2},      // a cap
    Case{{1, 9, 2, 2, 8, 0, 0, 1}, 1},      // only itself
    Case{{1, 150, 2, 1, 8, 0, 0, 17}, 2},   // windows across tiles
    Case{{1, 200, 1, 1, 8, 0, 0, 64}, 1},   // exactly a tile
    Case{{1, 200, 1, 1, 8, 1, 2, 100}, 1},  // everything
    Case{{1, 70, 1, 1, 8, 0, 0, 500}, 1}, Case{{1, 9, 2, 1, 8, 0, 0, 0, true}, 1},  // a zero
    Case{{1, 70, 2, 2, 8, 0, 2, 9, true}, 2},                                       // of few
    // Relative positions: within a tile, across tiles, and beyond the last bucket.
    Case{{3, 5, 2, 1, 6, 1, 0, 0, false, {4, 3}}, 2},
    Case{{2, 150, 4, 2, 8, 0, 0, 0, false, {8, 20}}, 3},
    Case{{3, 200, 2, 2, 8, 1, 2, 100, true, {32, 128}}, 2},
    Case{{1, 130, 1, 1, 16, 0, 0, 0, false, {32, 128}}, 1},
    Case{{2, 9, 2, 1, 8}, 1, {3, 4}},  // documents
    Case{{2, 200, 2, 1, 8}, 2, {1, 40, 64, 65, 150}},
    Case{{1, 300, 1, 1, 20}, 1, {200}},  // whole tiles unseen
    Case{{1, 200, 2, 2, 8, 0, 1.5, 30}, 1, {70, 90, 128}},
    Case{{2, 150, 2, 1, 8, 0, 0, 0, true, {8, 20}}, 2, {50, 70}}};

std::vector<Case> cases_with(bool (*holds)(const Case&)) {
  std::vector<Case> cases;
  std::ranges::copy_if(kCases, std::back_inserter(cases), holds);
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, Attention, testing::ValuesIn(kCases));
INSTANTIATE_TEST_SUITE_P(Shapes, CachedAttention, testing::ValuesIn(cases_with([](const Case& c) {
                           return c.documents.empty();
                         })));
INSTANTIATE_TEST_SUITE_P(Shapes, RelativeAttention, testing::ValuesIn(cases_with([](const Case& c) {
                           return c.shape.buckets.exist();
                         })));

// Large scores must not overflow the softmax.
TEST(AttentionRange, LargeScores) {
  const AttentionShape shape{.batch = 1, .seq_len = 70, .heads = 1, .kv_heads = 1, .head_dim = 4};
  const auto ops = cpu_ops(1);
  Values qkv = Values::random({70, 12}, 4, 60), out({70, 4}), lse({1, 1, 70});
  Scratch scratch(cpu_attention_elements(shape, 1));
  ops->attention(shape, qkv, {}, out, lse, scratch);
  for (int64_t i = 0; i < out.size(); ++i)
    ASSERT_TRUE(std::isfinite(out[i]) && std::abs(out[i]) <= 60.001F);
}

}  // namespace
}  // namespace muster::trainer
