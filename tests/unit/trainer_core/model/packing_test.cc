// Documents that share a sequence against each of them alone: the same losses, and gradients that
// add up.
#include <algorithm>
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/model/transformer_fixture.h"

namespace muster::trainer {
namespace {

constexpr int32_t kPackedBatch = 2, kPackedLength = 70;

// Without the balancing loss, which is per sequence, and with room for all choices.
ModelConfig experts_alone() {
  ModelConfig config = dropless(small_mixtral());
  config.experts.balance_weight = 0;
  return config;
}

// The begins of documents in each of the sequences: within tiles of 64, at their edge, with one
// token, with all.
const std::vector<std::vector<int32_t>> kBegins = {{0, 5, 6, 40, 64}, {0, 66}};

struct Documents {
  explicit Documents(int32_t vocab) : all(vocab, int64_t{kPackedBatch} * kPackedLength) {
    for (size_t b = 0; b < kBegins.size(); ++b) {
      for (size_t d = 0; d < kBegins[b].size(); ++d) {
        const int32_t begin = kBegins[b][d];
        const int32_t end = d + 1 < kBegins[b].size() ? kBegins[b][d + 1] : kPackedLength;
        starts.insert(starts.end(), static_cast<size_t>(end - begin), begin);
        const size_t first = b * kPackedLength + static_cast<size_t>(begin);
        ranges.push_back({first, static_cast<size_t>(end - begin)});
        all.weights[first + static_cast<size_t>(end - begin) - 1] = 0;  // its target is another's
      }
    }
  }
  Batch packed() const {
    return {.tokens = all.tokens, .targets = all.targets, .weights = all.weights, .starts = starts};
  }

  struct Range {
    size_t first, count;
  };
  TestBatch all;
  std::vector<int32_t> starts;
  std::vector<Range> ranges;
};

struct PackedModel {
  PackedModel(const ModelConfig& config, const LayerPlacements& placements,
              DType dtype = DType::kF32)
      : plan(build_transformer_plan(config, kPackedBatch, kPackedLength, dtype, placements, true, 2,
                                    0, true)),
        arena(plan.memory),
        ops(cpu_ops(2)),
        model(plan, arena, *ops) {
    randomize_params(plan, model.params());
  }

  TransformerPlan plan;
  Arena arena;
  std::unique_ptr<Ops> ops;
  Transformer model;
};

class Packing : public testing::TestWithParam<ModelConfig> {};

TEST_P(Packing, EachDocumentHasTheLossAndGradientsThatItHasAlone) {
  const Documents documents(GetParam().vocab_size);
  PackedModel packed(GetParam(), layer_placements(RematPolicy::kNone));
  const LossSum together = packed.model.forward_backward(documents.packed());

  LossSum sum;
  std::vector<double> grads(packed.model.grads().size());
  for (const Documents::Range& range : documents.ranges) {
    TestModel alone(GetParam(), 1, static_cast<int32_t>(range.count));
    randomize_params(alone.plan, alone.model.params());
    const auto part = [&](const auto& all) {
      return std::span(all).subspan(range.first, range.count);
    };
    const Batch batch{.tokens = part(documents.all.tokens),
                      .targets = part(documents.all.targets),
                      .weights = part(documents.all.weights)};
    sum += alone.model.forward_backward(batch);
    for (size_t i = 0; i < grads.size(); ++i) grads[i] += alone.model.grads()[i];
    // The position in the packed batch, where other documents' targets have weight 0.
    TestBatch single = documents.all;
    for (size_t i = 0; i < single.weights.size(); ++i)
      if (i < range.first || i >= range.first + range.count) single.weights[i] = 0;
    const LossSum own = packed.model.forward({.tokens = single.tokens,
                                              .targets = single.targets,
                                              .weights = single.weights,
                                              .starts = documents.starts});
    const LossSum expected = alone.model.forward(batch);
    EXPECT_EQ(own.weight, expected.weight);
    EXPECT_NEAR(own.loss, expected.loss, 1e-6 * std::max(1.0, expected.loss));
  }
  EXPECT_EQ(together.weight, sum.weight);
  EXPECT_NEAR(together.loss, sum.loss, 1e-6 * sum.loss);
  const double largest =
      std::abs(*std::ranges::max_element(grads, {}, [](double g) { return std::abs(g); }));
  for (size_t i = 0; i < grads.size(); ++i)
    ASSERT_NEAR(packed.model.grads()[i], grads[i], 2e-6 * largest) << i;
}

TEST_P(Packing, HasTheSameBitsUnderEveryRematPolicyAndUsesOnlyItsPlan) {
  const Documents documents(GetParam().vocab_size);
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    std::vector<float> first;
    for (size_t policy = 0; policy < kRematPolicyNames.size(); ++policy) {
      PackedModel packed(GetParam(), layer_placements(static_cast<RematPolicy>(policy)), dtype);
      packed.model.forward_backward(documents.packed());
      const std::span<const float> grads = packed.model.grads();
      if (first.empty()) first.assign(grads.begin(), grads.end());
      EXPECT_TRUE(std::ranges::equal(grads, first)) << kRematPolicyNames[policy];
      const auto without =
          build_transformer_plan(GetParam(), kPackedBatch, kPackedLength, dtype,
                                 layer_placements(static_cast<RematPolicy>(policy)), true, 2);
      const size_t more = packed.plan.memory.total_bytes() - without.memory.total_bytes();
      EXPECT_GE(more, kPackedBatch * kPackedLength * sizeof(int32_t));
      EXPECT_LT(more, kPackedBatch * kPackedLength * sizeof(int32_t) + 64)
          << "the starts alone are new";
    }
  }
}

// For one document per sequence, packing changes nothing, to the bit.
TEST_P(Packing, OfWholeSequencesEqualsNoPacking) {
  const TestBatch batch(GetParam().vocab_size, int64_t{kPackedBatch} * kPackedLength);
  const std::vector<int32_t> starts(batch.tokens.size());
  PackedModel packed(GetParam(), layer_placements(RematPolicy::kFull));
  TestModel plain(GetParam(), kPackedBatch, kPackedLength, RematPolicy::kFull, 2);
  randomize_params(plain.plan, plain.model.params());
  const LossSum a = packed.model.forward_backward({.tokens = batch.tokens,
                                                   .targets = batch.targets,
                                                   .weights = batch.weights,
                                                   .starts = starts});
  const LossSum b = plain.model.forward_backward(batch.view());
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_TRUE(std::ranges::equal(packed.model.grads(), plain.model.grads()));
}

INSTANTIATE_TEST_SUITE_P(Families, Packing,
                         testing::Values(small_config(4, 2, false), small_gpt(), small_gemma(),
                                         small_mixture_of_choices(), experts_alone()));

}  // namespace
}  // namespace muster::trainer
