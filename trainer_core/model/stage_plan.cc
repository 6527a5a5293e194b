#include "trainer_core/model/stage_plan.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

namespace muster::trainer {

std::vector<size_t> layers_at(const TransformerPlan& plan, size_t i) {
  std::vector<size_t> layers;
  for (int32_t chunk = 0; chunk < plan.pipeline().chunks; ++chunk)
    layers.push_back(plan.run(chunk).first + i % plan.run_length());
  return layers;
}

bool has_experts_at(const TransformerPlan& plan, size_t i) {
  return std::ranges::any_of(layers_at(plan, i), [&](size_t layer) {
    return plan.model.experts.in_layer(static_cast<int64_t>(layer));
  });
}

bool has_experts(const TransformerPlan& plan) {
  for (size_t i = 0; i < plan.layers.size(); ++i)
    if (has_experts_at(plan, i)) return true;
  return false;
}

std::string name_at(const TransformerPlan& plan, size_t i) {
  const std::string layer = absl::StrCat("layer", layers_at(plan, i).front(), ".");
  if (plan.pipeline().slots == 1) return layer;
  return absl::StrCat("slot", i / plan.run_length(), ".", layer);
}

void plan_stage(TransformerPlan& plan) {
  if (plan.pipeline().has_all_layers()) return;
  const auto add = [&](const char* name) {
    const int64_t elements = plan.own_rows() * plan.model.emb_dim;
    return plan.memory.add(name, MemoryCategory::kWorkspace,
                           static_cast<size_t>(elements) * dtype_bytes(plan.dtype));
  };
  if (plan.pipeline().receives_stream()) {
    plan.stage.received = add("stage.received");
    if (plan.training) plan.stage.sent_gradient = add("stage.sent_gradient");
  }
  if (plan.pipeline().sends_stream()) {
    plan.stage.sent = add("stage.sent");
    if (plan.training) plan.stage.received_gradient = add("stage.received_gradient");
  }
}

}  // namespace muster::trainer
