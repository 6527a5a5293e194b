// Compares the gradients of a model with finite differences of its loss.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/model/transformer_fixture.h"

namespace muster::trainer {

// Compares directional derivatives with central differences for every parameter tensor. The
// direction is the gradient of the tensor itself, so that any wrong element is detected. Requires
// that the gradients of the model are computed. `loss` returns the loss with the current parameters
// of the model.
template <class Loss>
void expect_gradients_of(TestModel& test, const Loss& loss) {
  const std::vector<float> grads(test.model.grads().begin(), test.model.grads().end());
  const std::span<float> params = test.model.params();
  const std::vector<float> start(params.begin(), params.end());
  for (const ParamSpec& spec : test.plan.params) {
    double square = 0;
    for (int64_t i = spec.offset; i < spec.offset + spec.elements(); ++i)
      square += std::pow(grads[static_cast<size_t>(i)], 2);
    const double norm = std::sqrt(square);
    if (norm < 1e-3) continue;  // the loss does not depend on this tensor
    const auto loss_at = [&](double distance) {
      for (int64_t i = spec.offset; i < spec.offset + spec.elements(); ++i) {
        const auto at = static_cast<size_t>(i);
        params[at] = static_cast<float>(start[at] + distance * grads[at] / norm);
      }
      return loss();
    };
    constexpr double kStep = 4e-3;
    // The difference is of fourth order, so that the truncation error is small at a step that is
    // large enough for fp32.
    const double slope =
        (8 * (loss_at(kStep) - loss_at(-kStep)) - (loss_at(2 * kStep) - loss_at(-2 * kStep))) /
        (12 * kStep);
    loss_at(0);
    EXPECT_NEAR(slope, norm, 2e-3 * norm + 1e-3) << spec.name;
  }
}

}  // namespace muster::trainer
