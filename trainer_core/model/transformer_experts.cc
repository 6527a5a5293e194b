// The layers whose MLP is a mixture of experts: forward, and backward beside it.
#include "trainer_core/base/tensor_rows.h"
#include "trainer_core/model/transformer_params.h"

namespace muster::trainer {

RoutingShape Transformer::routing_shape() const {
  const ExpertConfig& experts = plan_.model.experts;
  RoutingShape shape{.tokens = rows_ * plan_.part().sequence_sharers(),
                     .groups = experts.router == RouterStyle::kPax ? 1 : shape_.batch,
                     .experts = experts.count,
                     .per_token = experts.per_token,
                     .style = experts.router,
                     .first_own = plan_.first_routed(),
                     .own = rows_};
  // Where tokens arrive one by one there is no group to share a capacity.
  if (plan_.cache_capacity > 0) return shape;
  shape.capacity = experts.capacity(shape.group_tokens());
  shape.balance_weight = experts.balance_weight;
  return shape;
}

// Of the tokens whose rows of the stream are here.
RoutingShape Transformer::own_routing_shape() const {
  RoutingShape shape = routing_shape();
  shape.first_own += plan_.first_own_row();
  shape.own = own_rows_;
  return shape;
}

Tensor Transformer::own_routed(const Tensor& all) const {
  return rows_at(all, plan_.first_routed() + plan_.first_own_row(), own_rows_);
}

Routing Transformer::routing(size_t layer) const {
  const LayerBuffers& buffers = plan_.layers[layer];
  const RoutingShape shape = routing_shape();
  const auto view_ids = [&](BufferId id) {
    return Tensor::i32(static_cast<int32_t*>(arena_.buffer(id)), {shape.tokens, shape.per_token});
  };
  return {.probs = view(buffers.router_probs, {shape.tokens, shape.experts}),
          .experts = view_ids(buffers.chosen_experts),
          .gates = view(buffers.gates, {shape.tokens, shape.per_token}),
          .slots = view_ids(buffers.slots),
          .offsets = view_i32(arena_, buffers.expert_offsets, shape.experts + 1),
          .density = view(buffers.density, {shape.groups, shape.experts}),
          .balance = view(buffers.balance, {shape.groups}),
          .order = plan_.routed_order == 0 ? Tensor{}
                                           : view_i32(arena_, plan_.routed_order, shape.tokens)};
}

Transformer::OwnChoices Transformer::own_choices(const Routing& routing) const {
  return {rows_at(routing.slots, plan_.first_routed(), rows_),
          rows_at(routing.gates, plan_.first_routed(), rows_)};
}

Tensor Transformer::target_weights() const {
  if (plan_.cache_capacity > 0 || plan_.model.experts.balance_weight == 0) return {};
  return view(plan_.routed_weights, {plan_.routed_tokens()});
}

Tensor Transformer::expert_rows(BufferId id, int64_t width) const {
  return activation(id, {rows_ * plan_.model.experts.per_token, width});
}

// normed2 -> the routing, and the experts' gate_up.
void Transformer::make_expert_gate_up(size_t layer) {
  const LayerBuffers& buffers = plan_.layers[layer];
  const LayerWeights& weights = weights_->layers[layer];
  const Tensor normed = stream(buffers.normed2);
  const Routing routing = this->routing(layer);
  const Tensor dispatched = expert_rows(plan_.expert_rows, width_);
  ops_.matmul(normed, Transpose::kNo, weights.router, Transpose::kYes, own_routed(routing.probs),
              Accumulate::kNo);
  exchange_.fill_routed({ExchangeSite::kRouter, layer}, routing.probs);
  ops_.route(routing_shape(), target_weights(), routing);
  ops_.dispatch(own_choices(routing).slots,
                exchange_.all_rows({ExchangeSite::kMlpUp, layer}, normed), dispatched);
  ops_.expert_matmul(routing.offsets, dispatched, weights.experts_in,
                     expert_rows(buffers.gate_up, weights.experts_in.dim(1)));
}

void Transformer::make_expert_act(size_t layer) {
  const LayerBuffers& buffers = plan_.layers[layer];
  const LayerWeights& weights = weights_->layers[layer];
  ops_.activate(plan_.expert_activation(), expert_rows(buffers.gate_up, weights.experts_in.dim(1)),
                expert_rows(buffers.act, plan_.expert_columns().count));
}

// act -> delta.
void Transformer::make_expert_delta(size_t layer) {
  const Routing routing = this->routing(layer);
  const Tensor out = expert_rows(plan_.expert_rows, width_);
  ops_.expert_matmul(routing.offsets,
                     expert_rows(plan_.layers[layer].act, plan_.expert_columns().count),
                     weights_->layers[layer].experts_down, out);
  const Tensor delta = stream(plan_.delta), partial = exchange_.partial_rows(delta);
  const OwnChoices own = own_choices(routing);
  ops_.combine(own.slots, own.gates, out, partial);
  exchange_.sum_rows({ExchangeSite::kMlpDown, layer}, partial, delta);
  drop_own(DropoutSite::kMlp, layer, delta);
}

// What the experts gave is not kept: the gates' gradients come from act, because dout · (W act) = (Wᵀ dout) · act.
void Transformer::backward_experts(size_t layer, Accumulate accumulate) {
  const LayerBuffers& buffers = plan_.layers[layer];
  const LayerWeights& weights = weights_->layers[layer];
  const LayerWeights& grads = grads_->layers[layer];
  const Routing routing = this->routing(layer);
  const OwnChoices own = own_choices(routing);
  const Tensor rows = expert_rows(plan_.expert_rows, width_);
  const Tensor act = expert_rows(buffers.act, plan_.expert_columns().count);
  const Tensor d_act = expert_rows(plan_.d_expert_act, plan_.expert_columns().count);
  const Tensor gate_up = expert_rows(buffers.gate_up, weights.experts_in.dim(1));
  const Tensor d_gates = view(plan_.d_gates, {rows_, plan_.model.experts.per_token});
  const Tensor normed = stream(buffers.normed2);
  const Tensor d_normed = stream(plan_.delta);

  const ExchangePlace up{ExchangeSite::kMlpUp, layer}, down{ExchangeSite::kMlpDown, layer};
  ops_.dispatch(own.slots, exchange_.all_rows(down, added_gradient(DropoutSite::kMlp, layer)),
                rows);
  ops_.expert_matmul_dx(routing.offsets, rows, weights.experts_down, d_act);
  ops_.combine_backward(own.slots, own.gates, act, d_act, d_gates);
  ops_.expert_matmul_dw(routing.offsets, rows, act, grads.experts_down, accumulate);
  ops_.activate_backward(plan_.expert_activation(), d_act, gate_up);  // now d_gate_up
  ops_.dispatch(own.slots, exchange_.all_rows(up, normed), rows);
  ops_.expert_matmul_dw(routing.offsets, gate_up, rows, grads.experts_in, accumulate);
  ops_.expert_matmul_dx(routing.offsets, gate_up, weights.experts_in, rows);

  const Tensor own_d_gates = own_rows(d_gates), partial = exchange_.partial_rows(d_normed);
  exchange_.sum_rows({ExchangeSite::kRouter, layer}, d_gates, own_d_gates);
  ops_.route_backward(own_routing_shape(), target_weights(), own_d_gates, routing);
  if (splits_rows()) ops_.fill(partial, 0);
  project_backward(std::nullopt, own_routed(routing.probs), normed, weights.router, grads.router,
                   {}, own_rows(partial), accumulate);
  ops_.dispatch_backward(own.slots, rows, partial);
  exchange_.sum_rows(up, partial, d_normed);
}

// What the routers of all layers add to the loss, and whom they left out.
void Transformer::add_routing(LossSum& sum) {
  if (plan_.part().tensor.index != 0) return;  // who splits rows knows the same of all of them
  const RoutingShape shape = routing_shape();
  for (size_t layer = 0; layer < plan_.layers.size(); ++layer) {
    if (!has_experts(layer)) continue;
    const Routing routing = this->routing(layer);
    int32_t taken = 0;
    ops_.download(Tensor::i32(routing.offsets.i32() + shape.experts, {1}), &taken);
    // Of whole sequences, so that one of those who share them counts it.
    if (plan_.part().among_sharers() == 0) sum.balance += ops_.sum(routing.balance);
    const int64_t choices = rows_ * shape.per_token;
    sum.routed += choices;
    sum.dropped += choices - taken;
  }
  sum.loss += sum.balance;
}

}  // namespace muster::trainer
