// The arguments of the operations in expert_ops.inc, for mixtures of experts (Shazeer et al.,
// "Outrageously large neural networks", 2017). Rows and tokens are fp32 or bf16.
//
// Letters: T tokens in G groups; E experts, of which each token chooses k; R = T k, the maximum
// number of rows that the experts receive; d = model width. The rows of one expert are contiguous:
// expert e has rows [offsets[e], offsets[e + 1]).
//
// The tokens of a group compete for the experts' capacity, even if several ranks have the group's
// tokens. Each of these ranks therefore routes all tokens of the group, from gathered logits and
// with equal results, but creates rows only for its own tokens, [first_own, first_own + own) of the
// gathered tokens.
#pragma once

#include <cstdint>

#include "trainer_core/base/model_config.h"
#include "trainer_core/base/tensor.h"
#include "trainer_core/ops/op_arguments.h"

namespace muster::trainer {

// The shape of one layer's routing.
struct RoutingShape {
  int64_t tokens = 0;     // T
  int64_t groups = 1;     // G, divides T; a group is T / G consecutive tokens
  int64_t experts = 0;    // E
  int64_t per_token = 0;  // k, at most E
  int64_t capacity = 0;   // maximum number of rows of one group that an expert accepts; 0: no limit
  RouterStyle style = RouterStyle::kMaxText;
  double balance_weight = 0;  // weight of the load-balancing loss
  int64_t first_own = 0;      // first token of this rank, if other ranks have some of the T tokens
  int64_t own = 0;            // number of this rank's tokens; 0: all

  int64_t group_tokens() const { return tokens / groups; }
  int64_t own_tokens() const { return own == 0 ? tokens : own; }
  int64_t rows() const { return tokens * per_token; }
};

// The decisions of one layer's router.
struct Routing {
  Tensor probs;  // (T, E) fp32, softmax of the logits
  // (T, k) int32, the most probable expert first; of equally probable experts the one with the
  // lower number first
  Tensor experts;
  Tensor gates;  // (T, k) fp32: the chosen experts' probabilities, divided by their sum (plus 1e-9)
  Tensor
      // (T, k) int32: the index of the token's row for that expert; -1: dropped because the
      // capacity was exceeded, or the token belongs to another rank
      slots;
  Tensor offsets;  // (E + 1) int32: begins of the experts' rows
  Tensor density;  // (G, E) fp32: the share of the group's tokens that chose the expert
  Tensor balance;  // (G) fp32: the load-balancing loss of each group, times its weight
  // (T) int32: the row of the i-th token, in group order, in the other tensors; no tensor: row i.
  Tensor order{};
};

}  // namespace muster::trainer
