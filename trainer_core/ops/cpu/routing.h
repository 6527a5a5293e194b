// The CPU kernels of the router, which assigns tokens to experts (expert_ops.h).
#pragma once

#include <cstdint>

#include "trainer_core/ops/expert_ops.h"

namespace muster::trainer::cpu {

// A Routing (expert_ops.h) as plain arrays.
struct RoutingArrays {
  RoutingShape shape;
  const float* weights;  // (T)
  float* probs;          // (T, E)
  int32_t* experts;      // (T, k)
  float* gates;          // (T, k)
  int32_t* slots;        // (T, k)
  int32_t* offsets;      // (E + 1)
  float* density;        // (G, E)
  float* balance;        // (G)
  const int32_t* order;  // (T), or null

  // Returns the row, in the arrays above, of the i-th token in group order.
  int64_t row(int64_t i) const { return order == nullptr ? i : order[i]; }
  // Returns whether the token in this row belongs to this rank.
  bool is_own(int64_t row) const {
    return row >= shape.first_own && row < shape.first_own + shape.own_tokens();
  }
};

// For tokens [begin, end): replaces the logits in `probs` by probabilities, from which it chooses
// experts and computes gates.
void choose_experts(int64_t begin, int64_t end, const RoutingArrays& routing);
// Assigns slots and offsets to all tokens, on one thread, because the tokens of a group compete for
// the experts' capacity. Called after choose_experts().
void assign_slots(const RoutingArrays& routing);
// Computes density and balance of groups [begin, end). Called after choose_experts().
void balance_groups(int64_t begin, int64_t end, const RoutingArrays& routing);
// For tokens [begin, end) in group order that belong to this rank: replaces their probs by the
// gradient of their logits. dgates: the gates' gradient (own, k).
void route_backward_tokens(int64_t begin, int64_t end, const RoutingArrays& routing,
                           const float* dgates);

}  // namespace muster::trainer::cpu
