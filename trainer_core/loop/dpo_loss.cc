#include "trainer_core/loop/dpo_loss.h"

#include <algorithm>
#include <cmath>

namespace muster::trainer {
namespace {

double log_sigmoid(double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x))); }
double sigmoid(double x) { return std::exp(log_sigmoid(x)); }

}  // namespace

PairLoss dpo_loss(const DpoConfig& config, const PairScores& scores) {
  const bool averages = config.loss == DpoLoss::kIpo;
  const double chosen_scale = averages ? 1 / scores.chosen_tokens : 1;
  const double rejected_scale = averages ? 1 / scores.rejected_tokens : 1;
  const double chosen = (scores.policy_chosen - scores.reference_chosen) * chosen_scale;
  const double rejected = (scores.policy_rejected - scores.reference_rejected) * rejected_scale;
  const double beta = config.beta, smoothing = config.label_smoothing;
  const double h = chosen - rejected;
  PairLoss out{.chosen_reward = beta * chosen, .rejected_reward = beta * rejected};
  double slope = 0;  // d loss / d h
  switch (config.loss) {
    case DpoLoss::kSigmoid:
      out.loss = -(1 - smoothing) * log_sigmoid(beta * h) - smoothing * log_sigmoid(-beta * h);
      slope = -beta * (1 - smoothing) * sigmoid(-beta * h) + beta * smoothing * sigmoid(beta * h);
      break;
    case DpoLoss::kHinge:
      out.loss = std::max(0.0, 1 - beta * h);
      slope = beta * h < 1 ? -beta : 0;
      // A comparison with NaN is false, and the loss must show it.
      if (std::isnan(h)) out.loss = h;
      break;
    case DpoLoss::kIpo: {
      const double distance = h - 1 / (2 * beta);
      out.loss = distance * distance;
      slope = 2 * distance;
      break;
    }
  }
  out.d_chosen = slope * chosen_scale;
  out.d_rejected = -slope * rejected_scale;
  return out;
}

}  // namespace muster::trainer
