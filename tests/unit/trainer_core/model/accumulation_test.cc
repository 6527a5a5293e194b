// Gradients of several batches in one gradient block.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/model/transformer_fixture.h"

namespace muster::trainer {
namespace {

constexpr int32_t kLargeBatch = 4, kLargeBatchLength = 9;

// Returns sequences [first, first + count) of a batch.
Batch part_of(const TestBatch& data, size_t first, size_t count) {
  const size_t from = first * kLargeBatchLength, rows = count * kLargeBatchLength;
  return {std::span(data.tokens).subspan(from, rows), std::span(data.targets).subspan(from, rows),
          std::span(data.weights).subspan(from, rows)};
}

class Accumulation : public testing::TestWithParam<ModelConfig> {};

TEST_P(Accumulation, OfHalfBatchesIsTheWholeBatch) {
  for (const RematPolicy remat : {RematPolicy::kNone, RematPolicy::kFull}) {
    TestModel whole(GetParam(), kLargeBatch, kLargeBatchLength, remat),
        half(GetParam(), kLargeBatch / 2, kLargeBatchLength, remat);
    const TestBatch data(GetParam().vocab_size, int64_t{kLargeBatch} * kLargeBatchLength);
    randomize_params(whole.plan, whole.model.params());
    randomize_params(half.plan, half.model.params());
    const LossSum expected = whole.model.forward_backward(data.view());
    // Gradients of an earlier step are overwritten.
    std::ranges::fill(half.model.grads(), 1e6F);
    const LossSum first = half.model.forward_backward(part_of(data, 0, 2), Accumulate::kNo);
    const LossSum second = half.model.forward_backward(part_of(data, 2, 2), Accumulate::kYes);
    EXPECT_NEAR(first.loss + second.loss, expected.loss, 1e-6 * expected.loss);
    EXPECT_EQ(first.weight + second.weight, expected.weight);
    for (const ParamSpec& spec : whole.plan.params) {
      double largest = 0, difference = 0;
      for (int64_t i = spec.offset; i < spec.offset + spec.elements(); ++i) {
        const auto at = static_cast<size_t>(i);
        const double wanted = whole.model.grads()[at];
        largest = std::max(largest, std::abs(wanted));
        difference = std::max(difference, std::abs(half.model.grads()[at] - wanted));
      }
      EXPECT_LE(difference, 2e-6 * largest + 1e-6) << spec.name;
    }
  }
}

TEST_P(Accumulation, LeavesNoState) {
  TestModel fresh(GetParam(), kLargeBatch, kLargeBatchLength),
      used(GetParam(), kLargeBatch, kLargeBatchLength);
  const TestBatch data(GetParam().vocab_size, int64_t{kLargeBatch} * kLargeBatchLength);
  randomize_params(fresh.plan, fresh.model.params());
  randomize_params(used.plan, used.model.params());
  const double loss = fresh.model.forward_backward(data.view()).loss;
  used.model.forward_backward(data.view(), Accumulate::kYes);
  const std::vector<float> once(used.model.grads().begin(), used.model.grads().end());
  used.model.forward_backward(data.view(), Accumulate::kYes);
  EXPECT_NE(std::memcmp(once.data(), used.model.grads().data(), used.model.grads().size_bytes()),
            0);
  EXPECT_EQ(used.model.forward_backward(data.view(), Accumulate::kNo).loss, loss);
  EXPECT_EQ(std::memcmp(fresh.model.grads().data(), used.model.grads().data(),
                        fresh.model.grads().size_bytes()),
            0);
}

INSTANTIATE_TEST_SUITE_P(Families, Accumulation,
                         testing::Values(small_config(4, 2, false), small_gpt(), small_gemma(),
                                         small_mixture_of_choices(), small_mixtral(),
                                         small_dense_glam(), small_parallel()));

}  // namespace
}  // namespace muster::trainer
