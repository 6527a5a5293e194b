// The score of a target token.
#pragma once

namespace muster::trainer {

// The log-probability of a target in nats, given the tokens before it, and whether no other id is
// more probable. The soft cap of logits applies; z-loss and the target's weight do not. As a sum
// over targets: the sum, and whether all are greedy.
struct TargetScore {
  double log_probability = 0;
  bool is_greedy = true;
};

}  // namespace muster::trainer
