// The arguments of the operations of mixtures of experts (Shazeer et al., "Outrageously large
// neural networks", 2017), which are in expert_ops.inc. Rows and tokens are fp32 or bf16.
//
// Letters: T tokens in G groups, E experts, k of them per token, R = T k rows that the experts
// receive at most, d = model width. Rows of one expert are contiguous: those of expert e are
// [offsets[e], offsets[e + 1]).
//
// Tokens of a group compete for its experts' capacity across ranks. Ranks that share a group
// therefore each route the tokens of all of them identically, from gathered logits, and create rows
// only for their own tokens: the gathered rows [first_own, first_own + own).
#pragma once

#include <cstdint>

#include "trainer_core/base/model_config.h"
#include "trainer_core/base/tensor.h"
#include "trainer_core/ops/op_arguments.h"

namespace muster::trainer {

struct RoutingShape {
  int64_t tokens = 0;     // T
  int64_t groups = 1;     // G, divides T; a group is a run of T / G tokens
  int64_t experts = 0;    // E
  int64_t per_token = 0;  // k, at most E
  int64_t capacity = 0;   // rows that one expert takes of one group; 0: all that come
  RouterStyle style = RouterStyle::kMaxText;
  double balance_weight = 0;  // of the load-balancing loss
  int64_t first_own = 0;      // if other ranks have a part of the T
  int64_t own = 0;            // how many are this rank's; 0: all

  int64_t group_tokens() const { return tokens / groups; }
  int64_t own_tokens() const { return own == 0 ? tokens : own; }
  int64_t rows() const { return tokens * per_token; }
};

// The decisions of one layer's router.
struct Routing {
  Tensor probs;    // (T, E) fp32, softmax of the logits
  Tensor experts;  // (T, k) int32, the likeliest first; of equal ones that with the lower number
  Tensor gates;  // (T, k) fp32: the chosen experts' probabilities, divided by their sum (plus 1e-9)
  Tensor
      // (T, k) int32: the token's row at the expert; -1: over capacity, dropped, or another rank's
      slots;
  Tensor offsets;  // (E + 1) int32
  Tensor density;  // (G, E) fp32: the share of the group's tokens that chose the expert
  Tensor balance;  // (G) fp32: the load-balancing loss of each group, times its weight
  // (T) int32: for the i-th token in group order, its row in the other tensors; no tensor: i.
  Tensor order{};
};

}  // namespace muster::trainer
