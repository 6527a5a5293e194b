// Layers with experts: each function of the forward pass is followed by its backward pass.
#include "trainer_core/base/tensor_views.h"
#include "trainer_core/model/transformer_params.h"

namespace muster::trainer {

RoutingShape Transformer::routing_shape() const {
  RoutingShape shape = plan_.routing_shape();
  if (plan_.decodes()) shape.tokens = shape.own = rows_;  // the number of this call
  return shape;
}

// Returns the routing shape of this rank's rows of the residual stream.
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
  const LayerBuffers& buffers = buffers_of(layer);
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
          .order = plan_.routed_order.exists() ? view_i32(arena_, plan_.routed_order, shape.tokens)
                                               : Tensor{}};
}

Transformer::OwnChoices Transformer::own_choices(const Routing& routing) const {
  return {rows_at(routing.slots, plan_.first_routed(), rows_),
          rows_at(routing.gates, plan_.first_routed(), rows_)};
}

Tensor Transformer::target_weights() const {
  if (plan_.decodes() || plan_.model.experts.balance_weight == 0) return {};
  return view(plan_.routed_weights, {plan_.routed_tokens()});
}

ExpertTraffic Transformer::expert_traffic(size_t layer) {
  const LayerBuffers& buffers = buffers_of(layer);
  return {
      .offsets = view_i32(arena_, buffers.expert_offsets, plan_.model.experts.count + 1),
      .counts = expert_counts_.empty() ? nullptr : &expert_counts_[plan_.index_of(run_, layer)],
      .own_offsets = view_i32(arena_, buffers.own_expert_offsets, plan_.own_experts().count + 1)};
}

Tensor Transformer::expert_rows() const {
  return activation(plan_.expert_rows, {rows_ * plan_.model.experts.per_token, width_});
}

// Returns a view of a buffer for the rows of this rank's experts. On a single rank it includes rows
// of dropped choices, whose contents are not used. With several ranks it has only the received
// rows, because the buffer has room for far more rows than usually arrive.
Tensor Transformer::of_own_experts(size_t layer, BufferId id, int64_t width) const {
  if (expert_counts_.empty()) return activation(id, {rows_ * plan_.model.experts.per_token, width});
  return activation(id, {expert_counts_[plan_.index_of(run_, layer)].rows_received(), width});
}

Tensor Transformer::own_expert_rows(size_t layer) const {
  return of_own_experts(layer, plan_.own_expert_rows, width_);
}

Tensor Transformer::expert_act(size_t layer) const {
  return of_own_experts(layer, buffers_of(layer).act, plan_.expert_columns().count);
}

Tensor Transformer::expert_gate_up(size_t layer) const {
  return of_own_experts(layer, buffers_of(layer).gate_up,
                        plan_.expert_activation().input_width(plan_.expert_columns().count));
}

// Sends the rows of this rank's tokens to own_expert_rows of the ranks that have their experts.
void Transformer::send_to_experts(ExchangeSite site, size_t layer, const Tensor& x) {
  const ExchangeLabel label{site, layer};
  ops_.dispatch(own_choices(routing(layer)).slots, exchange_.all_rows(label, x), expert_rows());
  exchange_.to_experts(label, expert_traffic(layer), expert_rows(), own_expert_rows(layer));
}

void Transformer::make_routing(size_t layer) {
  const Routing routing = this->routing(layer);
  ops_.matmul(stream(buffers_of(layer).normed2), Transpose::kNo, weights_->layers[layer].router,
              Transpose::kYes, own_routed(routing.probs), Accumulate::kNo);
  exchange_.fill_routed({ExchangeSite::kRouter, layer}, routing.probs);
  ops_.route(routing_shape(), target_weights(), routing);
}

void Transformer::make_expert_gate_up(size_t layer) {
  send_to_experts(ExchangeSite::kMlpUp, layer, stream(buffers_of(layer).normed2));
  ops_.expert_matmul(expert_traffic(layer).own_offsets, own_expert_rows(layer),
                     weights_->layers[layer].experts_in, expert_gate_up(layer));
}

void Transformer::make_expert_act(size_t layer) {
  ops_.activate(plan_.expert_activation(), expert_gate_up(layer), expert_act(layer));
}

// Reads act and writes delta.
void Transformer::make_expert_delta(size_t layer) {
  const ExchangeLabel label{ExchangeSite::kMlpDown, layer};
  const OwnChoices own = own_choices(routing(layer));
  const ExpertTraffic traffic = expert_traffic(layer);
  const Tensor out = own_expert_rows(layer);
  ops_.expert_matmul(traffic.own_offsets, expert_act(layer), weights_->layers[layer].experts_down,
                     out);
  exchange_.to_tokens(label, traffic, out, expert_rows());
  const Tensor delta = stream(plan_.delta), partial = exchange_.partial_rows(delta);
  ops_.combine(own.slots, own.gates, expert_rows(), partial);
  exchange_.sum_rows(label, partial, delta);
  apply_dropout_to_own_rows(DropoutSite::kMlp, layer, delta);
}

// The outputs of experts are not saved. The gradients of gates are computed from act instead,
// because dout · (W act) = (Wᵀ dout) · act.
void Transformer::backward_through_experts(size_t layer, Accumulate accumulate) {
  const ExchangeLabel up{ExchangeSite::kMlpUp, layer}, router{ExchangeSite::kRouter, layer};
  const LayerWeights& weights = weights_->layers[layer];
  const LayerWeights& grads = grads_->layers[layer];
  const Routing routing = this->routing(layer);
  const OwnChoices own = own_choices(routing);
  const ExpertTraffic traffic = expert_traffic(layer);
  const Tensor& offsets = traffic.own_offsets;
  const Tensor rows = own_expert_rows(layer);
  const Tensor act = expert_act(layer), gate_up = expert_gate_up(layer);
  const Tensor d_act = of_own_experts(layer, plan_.d_expert_act, plan_.expert_columns().count);
  const Tensor d_gates = view(plan_.d_gates, {rows_, plan_.model.experts.per_token});
  const Tensor normed = stream(buffers_of(layer).normed2);
  const Tensor d_normed = stream(plan_.delta);

  send_to_experts(ExchangeSite::kMlpDown, layer, added_gradient(DropoutSite::kMlp, layer));
  ops_.expert_matmul_dx(offsets, rows, weights.experts_down, d_act);
  exchange_.combine_backward(router, traffic, {own.slots, own.gates, act, d_act, d_gates});
  if (exists(grads.experts_down))
    ops_.expert_matmul_dw(offsets, rows, act, grads.experts_down, accumulate);
  ops_.activate_backward(plan_.expert_activation(), d_act, gate_up, gate_up);  // now d_gate_up
  if (exists(grads.experts_in)) {
    send_to_experts(ExchangeSite::kMlpUp, layer, normed);
    ops_.expert_matmul_dw(offsets, gate_up, rows, grads.experts_in, accumulate);
  }
  ops_.expert_matmul_dx(offsets, gate_up, weights.experts_in, rows);
  exchange_.to_tokens(up, traffic, rows, expert_rows());

  const Tensor own_d_gates = own_rows(d_gates), partial = exchange_.partial_rows(d_normed);
  exchange_.sum_rows(router, d_gates, own_d_gates);
  ops_.route_backward(own_routing_shape(), target_weights(), own_d_gates, routing);
  if (splits_rows()) ops_.fill(partial, 0);
  project_backward(std::nullopt, own_routed(routing.probs), normed, weights.router, grads.router,
                   {}, {}, own_rows(partial), accumulate);
  ops_.dispatch_backward(own.slots, expert_rows(), partial);
  exchange_.sum_rows(up, partial, d_normed);
}

// Returns the load-balancing losses and the dropped choices of the run's layers.
LossSum Transformer::sum_routing() {
  LossSum sum;
  if (plan_.part().tensor.index != 0) return sum;  // ranks that split rows have the same sums
  const RoutingShape shape = routing_shape();
  for (size_t layer = run_.first; layer < run_.end; ++layer) {
    if (!has_experts(layer)) continue;
    const Routing routing = this->routing(layer);
    int32_t taken = 0;
    if (expert_counts_.empty())
      ops_.download(tensor_at(routing.offsets, shape.experts, {1}), &taken);
    else
      taken = static_cast<int32_t>(expert_counts_[plan_.index_of(run_, layer)].rows_sent());
    // The balance is that of complete sequences, so only one of the ranks with the same sequences
    // counts it.
    if (plan_.part().index_among_sharers() == 0) sum.balance += ops_.sum(routing.balance);
    const int64_t choices = rows_ * shape.per_token;
    sum.routed += choices;
    sum.dropped += choices - taken;
  }
  sum.loss = sum.balance;
  return sum;
}

}  // namespace muster::trainer
