#include "trainer_core/model/expert_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "trainer_core/model/stage_plan.h"

namespace muster::trainer {
namespace {

BufferId add_work(TransformerPlan& plan, std::string name, int64_t elements,
                  DType dtype = DType::kF32) {
  return plan.memory.add(std::move(name), MemoryCategory::kWorkspace,
                         static_cast<size_t>(elements) * dtype_bytes(dtype));
}

}  // namespace

int64_t expert_staging_width(const TransformerPlan& plan) {
  const auto of_gate = static_cast<int64_t>(sizeof(float) / dtype_bytes(plan.dtype));
  return std::max<int64_t>(plan.model.emb_dim, of_gate);
}

RoutingShape TransformerPlan::routing_shape() const {
  const ExpertConfig& experts = model.experts;
  const bool is_pax = experts.router == RouterStyle::kPax;
  RoutingShape shape{.tokens = routed_tokens(),
                     .groups = is_pax ? 1 : batch,
                     .experts = experts.count,
                     .per_token = experts.per_token,
                     .style = experts.router,
                     .first_own = first_routed(),
                     .own = token_count()};
  // When decoding, tokens arrive one by one, and no group shares a capacity.
  if (decodes()) return shape;
  if (is_pax && experts.num_groups > 0) shape.groups = experts.num_groups / part().micro_batches;
  shape.capacity = experts.capacity(shape.group_tokens());
  shape.balance_weight = experts.balance_weight;
  return shape;
}

std::vector<LayerTensor> routing_tensors(const TransformerPlan& plan) {
  using Buffers = LayerBuffers;
  const RoutingShape shape = plan.routing_shape();
  // The routing is saved if the experts' results are, and is too small to be offloaded.
  const Placement placement =
      plan.placements.gate_up == Placement::kRemat ? Placement::kRemat : Placement::kDevice;
  const auto tensor = [&](const char* name, BufferId LayerBuffers::*id, int64_t elements) {
    return LayerTensor{name, id, elements, DType::kF32, placement};
  };
  return {tensor("router_probs", &Buffers::router_probs, shape.tokens * shape.experts),
          tensor("chosen_experts", &Buffers::chosen_experts, shape.rows()),
          tensor("gates", &Buffers::gates, shape.rows()),
          tensor("slots", &Buffers::slots, shape.rows()),
          tensor("density", &Buffers::density, shape.groups * shape.experts)};
}

std::vector<LayerTensor> expert_tensors(const TransformerPlan& plan) {
  const int64_t rows = plan.own_expert_rows_max(), columns = plan.expert_columns().count;
  std::vector<LayerTensor> tensors = routing_tensors(plan);
  tensors.push_back({"gate_up", &LayerBuffers::gate_up,
                     rows * plan.expert_activation().input_width(columns), plan.dtype,
                     plan.placements.gate_up});
  tensors.push_back({"act", &LayerBuffers::act, rows * columns, plan.dtype, plan.placements.rest});
  return tensors;
}

void add_expert_counts(TransformerPlan& plan) {
  const RoutingShape shape = plan.routing_shape();
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    if (!has_experts_at(plan, i)) continue;
    LayerBuffers& layer = plan.layers[i];
    const auto add = [&](const char* what, int64_t elements) {
      return add_work(plan, name_at(plan, i) + what, elements);
    };
    layer.expert_offsets = add("expert_offsets", shape.experts + 1);
    layer.balance = add("balance", shape.groups);
    layer.own_expert_offsets = layer.expert_offsets;
    if (!plan.part().splits_experts()) continue;
    layer.own_expert_offsets = add("own_expert_offsets", plan.own_experts().count + 1);
  }
}

void add_expert_work(TransformerPlan& plan) {
  if (!has_experts(plan)) return;
  const int64_t choices = plan.expert_rows_count(), rows = plan.own_expert_rows_max();
  const int64_t width = plan.model.emb_dim;
  plan.expert_rows = add_work(plan, "expert_rows", choices * width, plan.dtype);
  plan.own_expert_rows = plan.expert_rows;
  if (plan.training) {
    plan.d_expert_act =
        add_work(plan, "d_expert_act", rows * plan.expert_columns().count, plan.dtype);
    plan.d_gates = add_work(plan, "d_gates", choices);
  }
  if (!plan.part().splits_experts()) return;
  ExpertExchangeBuffers& exchange = plan.expert_exchange;
  plan.own_expert_rows = add_work(plan, "own_expert_rows", rows * width, plan.dtype);
  exchange.staging =
      add_work(plan, "expert_staging", rows * expert_staging_width(plan), plan.dtype);
  if (!plan.training) return;
  exchange.gate_rows = add_work(plan, "gate_rows", choices);
  exchange.gates = add_work(plan, "own_expert_gates", rows);
  exchange.d_gates = add_work(plan, "d_own_expert_gates", rows);
}

void add_expert_constants(TransformerPlan& plan) {
  if (!plan.part().splits_experts() || !plan.training || !has_experts(plan)) return;
  plan.expert_exchange.rows_in_order =
      add_work(plan, "expert_rows_in_order", plan.own_expert_rows_max());
}

}  // namespace muster::trainer
