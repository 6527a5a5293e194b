// Attention and its gradients against a direct fp64 reference.
#include <algorithm>
#include <iterator>
#include <ostream>

#include "tests/unit/trainer_core/ops/ops_fixture.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {
namespace {

// Attention of one batch in fp64, a row of one head at a time.
class Reference {
 public:
  // `bias` (H, buckets), or nothing.
  Reference(const AttentionShape& shape, std::vector<double> qkv, std::vector<double> bias)
      : s_(shape), qkv_(std::move(qkv)), bias_(std::move(bias)) {
    out.resize(static_cast<size_t>(s_.rows() * s_.out_width()));
    lse.resize(static_cast<size_t>(s_.rows() * s_.heads));
    each_row([&](const Place& at) {
      const Row row = weigh(at);
      lse[static_cast<size_t>((at.sequence * s_.heads + at.head) * s_.seq_len + at.position)] =
          row.lse;
      for (int64_t e = 0; e < s_.head_dim; ++e) {
        double sum = 0;
        for (int64_t j = row.oldest; j <= at.position; ++j)
          sum += row.weight(j) * qkv_[value(at, j, e)];
        out[out_at(at, e)] = sum;
      }
    });
  }

  struct Gradients {
    std::vector<double> dqkv, dbias;
  };
  // Gradients of sum(dout out), by the chain rule.
  Gradients gradients(const std::vector<double>& dout) const {
    Gradients d{std::vector<double>(qkv_.size()), std::vector<double>(bias_.size())};
    each_row([&](const Place& at) {
      const Row row = weigh(at);
      double mean = 0;  // mean of the weights' gradients, which the softmax subtracts
      for (int64_t e = 0; e < s_.head_dim; ++e) mean += dout[out_at(at, e)] * out[out_at(at, e)];
      for (int64_t j = row.oldest; j <= at.position; ++j) {
        double d_weight = 0;
        for (int64_t e = 0; e < s_.head_dim; ++e) {
          d_weight += dout[out_at(at, e)] * qkv_[value(at, j, e)];
          d.dqkv[value(at, j, e)] += row.weight(j) * dout[out_at(at, e)];
        }
        double d_score = row.weight(j) * (d_weight - mean);
        if (s_.soft_cap > 0) d_score *= 1 - std::pow(row.score(j) / s_.soft_cap, 2);
        if (s_.buckets.exist()) d.dbias[bias_at(at, j)] += d_score;
        for (int64_t e = 0; e < s_.head_dim; ++e) {
          d.dqkv[query(at, e)] += scale() * d_score * qkv_[key(at, j, e)];
          d.dqkv[key(at, j, e)] += scale() * d_score * qkv_[query(at, e)];
        }
      }
    });
    return d;
  }

  std::vector<double> out, lse;

 private:
  struct Place {
    int64_t sequence, head, position;
  };
  // The positions that a position sees, from the oldest on.
  struct Row {
    int64_t oldest;
    std::vector<double> scores = {}, weights = {};
    double lse = 0;

    double score(int64_t j) const { return scores[static_cast<size_t>(j - oldest)]; }
    double weight(int64_t j) const { return weights[static_cast<size_t>(j - oldest)]; }
  };

  template <typename Body>
  void each_row(const Body& body) const {
    for (int64_t b = 0; b < s_.batch; ++b) {
      for (int64_t head = 0; head < s_.heads; ++head) {
        for (int64_t i = 0; i < s_.seq_len; ++i) body(Place{b, head, i});
      }
    }
  }

  double scale() const {
    return s_.scale > 0 ? s_.scale : 1 / std::sqrt(static_cast<double>(s_.head_dim));
  }
  size_t qkv_at(const Place& at, int64_t position, int64_t head, int64_t e) const {
    return static_cast<size_t>((at.sequence * s_.seq_len + position) * s_.qkv_width() +
                               head * s_.head_dim + e);
  }
  int64_t group(const Place& at) const { return at.head / (s_.heads / s_.kv_heads); }
  size_t query(const Place& at, int64_t e) const { return qkv_at(at, at.position, at.head, e); }
  size_t key(const Place& at, int64_t j, int64_t e) const {
    return qkv_at(at, j, s_.heads + group(at), e);
  }
  size_t value(const Place& at, int64_t j, int64_t e) const {
    return qkv_at(at, j, s_.heads + s_.kv_heads + group(at), e);
  }
  size_t out_at(const Place& at, int64_t e) const {
    return static_cast<size_t>((at.sequence * s_.seq_len + at.position) * s_.out_width() +
                               at.head * s_.head_dim + e);
  }
  size_t bias_at(const Place& at, int64_t j) const {
    return static_cast<size_t>(at.head * s_.buckets.count + s_.buckets.of(at.position - j));
  }

  Row weigh(const Place& at) const {
    Row row{.oldest = s_.window == 0 ? 0 : std::max<int64_t>(0, at.position - s_.window + 1)};
    if (s_.starts.data != nullptr)
      row.oldest =
          std::max<int64_t>(row.oldest, s_.starts.i32()[at.sequence * s_.seq_len + at.position]);
    double total = s_.extra_zero ? 1 : 0;
    for (int64_t j = row.oldest; j <= at.position; ++j) {
      double score = 0;
      for (int64_t e = 0; e < s_.head_dim; ++e) score += qkv_[query(at, e)] * qkv_[key(at, j, e)];
      score *= scale();
      if (s_.buckets.exist()) score += bias_[bias_at(at, j)];
      if (s_.soft_cap > 0) score = s_.soft_cap * std::tanh(score / s_.soft_cap);
      row.scores.push_back(score);
      row.weights.push_back(std::exp(score));
      total += row.weights.back();
    }
    for (double& weight : row.weights) weight /= total;
    row.lse = std::log(total);
    return row;
  }

  const AttentionShape s_;
  const std::vector<double> qkv_, bias_;
};

struct AttentionCase {
  AttentionShape shape;
  int threads;
  std::vector<int32_t> documents = {};  // starts of all documents but the first

  friend std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
    return out << "B" << c.shape.batch << "_S" << c.shape.seq_len << "_H" << c.shape.heads << "_K"
               << c.shape.kv_heads << "_h" << c.shape.head_dim << "_scale" << c.shape.scale
               << "_cap" << c.shape.soft_cap << "_window" << c.shape.window << "_zero"
               << c.shape.extra_zero << "_buckets" << c.shape.buckets.count << "_documents"
               << c.documents.size() + 1 << "_threads" << c.threads;
  }
};

class Attention : public testing::TestWithParam<AttentionCase> {
 protected:
  Attention() {
    if (GetParam().documents.empty()) return;
    for (int64_t row = 0; row < shape_.rows(); ++row) {
      int32_t start = 0;
      // A sequence's documents begin one position later than those of the previous sequence.
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

class SmallAttention : public Attention {};
class PagedAttention : public Attention {};  // a cache has one document per sequence
class RelativeAttention : public Attention {};

TEST_P(Attention, Forward) {
  Scratch scratch(cpu_attention_elements(shape(), GetParam().threads));
  ops_->attention(shape(), qkv_, bias_, out_, lse_, scratch);
  const Reference expected(shape(), as_double(qkv_), as_double(bias_));
  expect_near(out_, expected.out, 3e-6);
  expect_near(lse_, expected.lse, 3e-6);
}

// The results are the same for any pieces in which a sequence arrives.
TEST_P(PagedAttention, InPieces) {
  const AttentionShape& whole = shape();
  constexpr int64_t kSpare = 3;  // positions of the cache that must not be read
  constexpr int64_t kBlock = 4;
  const int64_t each = (whole.seq_len + kSpare + kBlock - 1) / kBlock;
  const float nan = std::nanf("");
  Values keys({whole.batch * each, whole.kv_heads, kBlock, whole.head_dim}, nan), values = keys;
  Scratch scratch(cpu_attention_paged_elements(whole, each * kBlock, GetParam().threads));
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
  for (int64_t first = 0, call = 0; first < whole.seq_len; ++call) {
    AttentionShape piece = whole;
    const int64_t wanted = call == 0 ? 5 : call < 4 ? 1 : 60;
    const int64_t count = std::min(wanted, whole.seq_len - first);
    piece.batch = 1;
    piece.seq_len = whole.batch * count;
    TestRows rows(whole.batch, count, first, each);
    Values qkv({piece.rows(), piece.qkv_width()}), out({piece.rows(), piece.out_width()}, nan);
    rows_of(qkv_, first, count, piece.qkv_width(), false, qkv);
    ops_->attention_paged(piece, rows, qkv, bias_, {keys, values}, out, scratch);
    rows_of(out_, first, count, piece.out_width(), true, out);
    first += count;
  }
  expect_near(out_, Reference(whole, as_double(qkv_), as_double(bias_)).out, 3e-6);
}

TEST_P(Attention, Backward) {
  Scratch scratch(std::max(cpu_attention_elements(shape(), GetParam().threads),
                           cpu_attention_backward_elements(shape(), GetParam().threads)));
  ops_->attention(shape(), qkv_, bias_, out_, lse_, scratch);
  Values dout = Values::random({shape().rows(), shape().out_width()}, 2);
  Values dqkv({shape().rows(), shape().qkv_width()}, -7);
  Values dbias({shape().heads, shape().buckets.count}, -7);
  ops_->attention_backward(shape(), qkv_, bias_, out_, lse_, dout, dqkv, dbias, Accumulate::kNo,
                           scratch);
  const Reference reference(shape(), as_double(qkv_), as_double(bias_));
  const Reference::Gradients expected = reference.gradients(as_double(dout));
  expect_near(dqkv, expected.dqkv, 2e-5);
  if (shape().buckets.exist()) expect_near(dbias, expected.dbias, 2e-5);
}

// Validates the reference of the gradients above by finite differences.
TEST_P(SmallAttention, TheReferencesGradientsAreItsDerivatives) {
  const std::vector<double> dout =
      as_double(Values::random({shape().rows(), shape().out_width()}, 2));
  const auto weighted = [&](const std::vector<double>& qkv, const std::vector<double>& bias) {
    const Reference moved(shape(), qkv, bias);
    return std::inner_product(dout.begin(), dout.end(), moved.out.begin(), 0.0);
  };
  const std::vector<double> qkv = as_double(qkv_), bias = as_double(bias_);
  const Reference::Gradients gradients = Reference(shape(), qkv, bias).gradients(dout);
  const auto expect_derivative = [](const std::vector<double>& gradient,
                                    const std::vector<double>& slope) {
    ASSERT_EQ(gradient.size(), slope.size());
    for (size_t i = 0; i < slope.size(); ++i) ASSERT_NEAR(gradient[i], slope[i], 1e-7) << i;
  };
  expect_derivative(gradients.dqkv, derivative(qkv, [&](const std::vector<double>& moved) {
                      return weighted(moved, bias);
                    }));
  expect_derivative(gradients.dbias, derivative(bias, [&](const std::vector<double>& moved) {
                      return weighted(qkv, moved);
                    }));
}

// Sums over sequences are made in an order of their own, so the bits do not depend on threads; and
// a second batch's are added.
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

const std::vector<AttentionCase> kAttentionCases = {
    AttentionCase{{1, 1, 1, 1, 2}, 1},     // one position
    AttentionCase{{2, 5, 4, 1, 6}, 2},     // one key/value head
    AttentionCase{{2, 7, 4, 2, 10}, 2},    // groups
    AttentionCase{{1, 9, 3, 3, 16}, 1},    // no groups
    AttentionCase{{1, 64, 2, 1, 8}, 1},    // exactly one tile
    AttentionCase{{1, 65, 1, 1, 20}, 3},   // one row more
    AttentionCase{{1, 150, 2, 2, 64}, 2},  // several tiles
    AttentionCase{{1, 33, 1, 1, 80}, 1}, AttentionCase{{1, 70, 2, 1, 128}, 2},
    AttentionCase{{1, 70, 2, 1, 8, 0.7}, 1},         // a scale
    AttentionCase{{2, 70, 2, 1, 8, 0, 1.5}, 2},      // a cap
    AttentionCase{{1, 9, 2, 2, 8, 0, 0, 1}, 1},      // only itself
    AttentionCase{{1, 150, 2, 1, 8, 0, 0, 17}, 2},   // windows across tiles
    AttentionCase{{1, 200, 1, 1, 8, 0, 0, 64}, 1},   // exactly a tile
    AttentionCase{{1, 200, 1, 1, 8, 1, 2, 100}, 1},  // everything
    AttentionCase{{2, 7, 4, 2, 4, 0.7, 1.5, 4, true, {4, 5}}, 2, {3}},
    AttentionCase{{1, 70, 1, 1, 8, 0, 0, 500}, 1},
    AttentionCase{{1, 9, 2, 1, 8, 0, 0, 0, true}, 1},   // a zero
    AttentionCase{{1, 70, 2, 2, 8, 0, 2, 9, true}, 2},  // a zero among few keys
    // Relative positions: within a tile, across tiles, and beyond the last bucket.
    AttentionCase{{3, 5, 2, 1, 6, 1, 0, 0, false, {4, 3}}, 2},
    AttentionCase{{2, 150, 4, 2, 8, 0, 0, 0, false, {8, 20}}, 3},
    AttentionCase{{3, 200, 2, 2, 8, 1, 2, 100, true, {32, 128}}, 2},
    AttentionCase{{1, 130, 1, 1, 16, 0, 0, 0, false, {32, 128}}, 1},
    AttentionCase{{2, 9, 2, 1, 8}, 1, {3, 4}},  // documents
    AttentionCase{{2, 200, 2, 1, 8}, 2, {1, 40, 64, 65, 150}},
    AttentionCase{{1, 300, 1, 1, 20}, 1, {200}},  // whole tiles unseen
    AttentionCase{{1, 200, 2, 2, 8, 0, 1.5, 30}, 1, {70, 90, 128}},
    AttentionCase{{2, 150, 2, 1, 8, 0, 0, 0, true, {8, 20}}, 2, {50, 70}}};

std::vector<AttentionCase> cases_with(bool (*holds)(const AttentionCase&)) {
  std::vector<AttentionCase> cases;
  std::ranges::copy_if(kAttentionCases, std::back_inserter(cases), holds);
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, Attention, testing::ValuesIn(kAttentionCases));
INSTANTIATE_TEST_SUITE_P(Shapes, SmallAttention,
                         testing::ValuesIn(cases_with([](const AttentionCase& c) {
                           return c.shape.rows() * c.shape.qkv_width() <= 500;
                         })));
INSTANTIATE_TEST_SUITE_P(Shapes, PagedAttention,
                         testing::ValuesIn(cases_with([](const AttentionCase& c) {
                           return c.documents.empty();
                         })));
INSTANTIATE_TEST_SUITE_P(Shapes, RelativeAttention,
                         testing::ValuesIn(cases_with([](const AttentionCase& c) {
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
