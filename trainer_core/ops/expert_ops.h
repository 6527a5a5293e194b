// The part of the op table that mixtures of experts need (Shazeer et al., "Outrageously large neural networks", 2017).
// What ops.h says of every op holds for these; rows and tokens are fp32 or bf16.
//
// Letters: T tokens in G groups, E experts, k of them per token, R = T k rows that the experts see at most, d = model
// width. Rows of one expert lie together: those of expert e are [offsets[e], offsets[e + 1]).
//
// Tokens of a group compete for its experts' capacity wherever they are. So where several ranks share a group, each routes the
// tokens of all of them, whose logits are gathered, alike, and gives rows to its own: the gathered rows [first_own, first_own + own).
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
  int64_t first_own = 0;      // where other ranks have a part of the T
  int64_t own = 0;            // how many are this rank's; 0: all

  int64_t group_tokens() const { return tokens / groups; }
  int64_t own_tokens() const { return own == 0 ? tokens : own; }
  int64_t rows() const { return tokens * per_token; }
  // Whether the targets' weights are looked at.
  bool weighs_tokens() const {
    return balance_weight != 0 || (style == RouterStyle::kPax && capacity > 0);
  }
};

// What one layer's router decided.
struct Routing {
  Tensor probs;    // (T, E) fp32, softmax of the logits
  Tensor experts;  // (T, k) int32, the likeliest first; of equal ones that with the lower number
  Tensor gates;  // (T, k) fp32: the chosen experts' probabilities, divided by their sum (plus 1e-9)
  Tensor
      slots;  // (T, k) int32: the row that the expert sees the token in; -1: over capacity, dropped, or another rank's
  Tensor offsets;  // (E + 1) int32
  Tensor density;  // (G, E) fp32: the share of the group's tokens that chose the expert
  Tensor balance;  // (G) fp32: the load-balancing loss of each group, times its weight
  // (T) int32: the row of the other tensors that the i-th token in the groups' order is; no tensor: i.
  Tensor order{};
};

class ExpertOps {
 public:
  virtual ~ExpertOps() = default;

  // Softmax, the top k, and who gets a row. An expert with more than `capacity` tokens of a group takes the earliest. kPax:
  // all first choices in order of T, then all second ones, and so on, and in the same way behind all of these those of tokens whose
  // targets weigh nothing: padding (praxis does not route it), or a document's last token; kMaxText: in order of T, all choices of a token
  // together, so that what is behind a sequence's end comes last in its group. balance[g] = balance_weight W_g E sum_e density[g, e] mean_t probs[t, e], with W_g the sum of the group's
  // target weights (T), which are not looked at where shape.weighs_tokens() says no; density counts first choices (kPax: GShard, Lepikhin et al., 2021, as GLaM uses it) or all choices
  // (kMaxText). routing.probs holds the logits before and probabilities after.
  virtual void route(const RoutingShape& shape, const Tensor& weights, const Routing& routing) = 0;
  // Replaces routing.probs of this rank's own tokens by the gradient of the logits, given their dgates (own, k): through gates and
  // balance; choices and density are constants.
  virtual void route_backward(const RoutingShape& shape, const Tensor& weights,
                              const Tensor& dgates, const Routing& routing) = 0;

  // rows (R, d)[slot] = x (T, d) of the slot's token.
  virtual void dispatch(const Tensor& slots, const Tensor& x, const Tensor& rows) = 0;
  // dx (T, d) += the sum of drows (R, d) over the token's slots.
  virtual void dispatch_backward(const Tensor& slots, const Tensor& drows, const Tensor& dx) = 0;
  // out (T, d) = the sum of gate rows[slot] over the token's slots; zeros where all were dropped.
  virtual void combine(const Tensor& slots, const Tensor& gates, const Tensor& rows,
                       const Tensor& out) = 0;
  // What is left of combine's gradient, given that of its rows' experts' inputs act (R, m) as if all gates were one, dact
  // (R, m): dgates = act[slot] · dact[slot], 0 where dropped; then both rows are multiplied by the gate, which makes dact the
  // gradient, and act what the weight gradient needs.
  virtual void combine_backward(const Tensor& slots, const Tensor& gates, const Tensor& act,
                                const Tensor& dact, const Tensor& dgates) = 0;

  // y (R, o) = x (R, i) w_eᵀ for the rows of each expert e, with w (E, o, i).
  virtual void expert_matmul(const Tensor& offsets, const Tensor& x, const Tensor& w,
                             const Tensor& y) = 0;
  // dx (R, i) = dy (R, o) w_e. `dx` may not be `dy`.
  virtual void expert_matmul_dx(const Tensor& offsets, const Tensor& dy, const Tensor& w,
                                const Tensor& dx) = 0;
  // dw_e (E, o, i) = dy_eᵀ x_e, or += …; an expert without rows has a gradient of zeros.
  virtual void expert_matmul_dw(const Tensor& offsets, const Tensor& dy, const Tensor& x,
                                const Tensor& dw, Accumulate accumulate) = 0;
};

}  // namespace muster::trainer
