// Who goes to which expert: the CPU's router. Serial over groups, whose tokens compete for the experts' capacity.
#pragma once

#include <cstdint>

#include "trainer_core/ops/expert_ops.h"

namespace muster::trainer::cpu {

// A Routing by its plain arrays.
struct RoutingArrays {
  RoutingShape shape;
  const float* weights;  // (T), or null: nobody looks at them
  float* probs;          // (T, E)
  int32_t* experts;      // (T, k)
  float* gates;          // (T, k)
  int32_t* slots;        // (T, k)
  int32_t* offsets;      // (E + 1)
  float* density;        // (G, E)
  float* balance;        // (G)
  const int32_t* order;  // (T), or null

  // Of the i-th token in the groups' order.
  int64_t row(int64_t i) const { return order == nullptr ? i : order[i]; }
  bool is_own(int64_t row) const {
    return row >= shape.first_own && row < shape.first_own + shape.own_tokens();
  }
};

// Tokens [begin, end): probs from logits, experts and gates.
void choose_experts(int64_t begin, int64_t end, const RoutingArrays& routing);
// All tokens, after that: slots and offsets.
void assign_slots(const RoutingArrays& routing);
// Groups [begin, end), after choose_experts: density and balance.
void balance_groups(int64_t begin, int64_t end, const RoutingArrays& routing);
// Tokens [begin, end) in the groups' order: probs of the rank's own become the gradient of the logits; dgates (own, k).
void route_backward_tokens(int64_t begin, int64_t end, const RoutingArrays& routing,
                           const float* dgates);

}  // namespace muster::trainer::cpu
