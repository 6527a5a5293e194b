// The loss of direct preference optimization (Rafailov et al., 2023) of a pair of answers, as TRL
// computes it. With the log-probabilities of the answers in the policy and in the reference model,
//
//   h = (policy chosen - policy rejected) - (reference chosen - reference rejected)
//
//   sigmoid   -(1 - e) log sigmoid(b h) - e log sigmoid(-b h)      b: dpo_beta
//   hinge     max(0, 1 - b h)                                      e: dpo_label_smoothing
//   ipo       (h - 1 / (2 b))^2, with mean log-probabilities per token
#pragma once

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// Log-probabilities of the answers of a pair in nats, as sums over their tokens, and the numbers of
// these tokens.
struct PairScores {
  double policy_chosen = 0, policy_rejected = 0;
  double reference_chosen = 0, reference_rejected = 0;
  double chosen_tokens = 0, rejected_tokens = 0;
};

struct PairLoss {
  double loss = 0;
  // Derivatives of the loss with respect to policy_chosen and policy_rejected.
  double d_chosen = 0, d_rejected = 0;
  // b (policy - reference) of the answers.
  double chosen_reward = 0, rejected_reward = 0;
};

// Returns the loss of a pair. Requires that both answers have tokens.
PairLoss dpo_loss(const DpoConfig& config, const PairScores& scores);

}  // namespace muster::trainer
