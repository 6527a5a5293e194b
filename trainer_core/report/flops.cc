#include "trainer_core/report/flops.h"

#include "trainer_core/base/train_mesh.h"

namespace muster::trainer {
namespace {

// Returns the forward FLOPs of the GEMMs of all layers' MLPs.
double mlp_flops(const ModelConfig& model, double tokens) {
  const auto products = [](bool gated) { return gated ? 3.0 : 2.0; };
  const ExpertConfig& experts = model.experts;
  const double width = model.emb_dim;
  const double dense = 2 * tokens * width * model.mlp_dim * products(model.gated_mlp);
  const double mixture =
      2 * tokens * width *
      (experts.count + products(experts.gated) * experts.mlp_dim * experts.per_token);
  double total = 0;
  for (int32_t layer = 0; layer < model.num_layers; ++layer)
    total += experts.in_layer(layer) ? mixture : dense;
  return total;
}

// Returns the forward FLOPs of the adapters of all layers.
double adapter_flops(const ModelConfig& model, double tokens) {
  if (!model.lora.enabled()) return 0;
  double elements = 0;
  for (int32_t layer = 0; layer < model.num_layers; ++layer) {
    for (size_t i = 0; i < kLoraTargetNames.size(); ++i) {
      const auto target = static_cast<LoraTarget>(i);
      const bool is_expert = target >= LoraTarget::kGate && model.experts.in_layer(layer);
      if (is_expert || !model.lora.adapts(target)) continue;
      const auto [out, in] = projection_shape(model, target);
      elements += static_cast<double>(model.lora.rank * (out + in));
    }
  }
  return 2 * tokens * elements;
}

}  // namespace

StepTflops step_tflops(const TrainConfig& config) {
  const ModelConfig& model = config.model;
  // Sequences per rank: the ranks of a slice divide its work.
  const double batch =
      double{1} * config.per_device_batch_size / ranks_of_slice(mesh_of(config.mesh));
  const double seq = config.max_target_length;  // S
  const double tokens = batch * seq;
  const double width = model.emb_dim;
  const double query = double{1} * model.num_query_heads * model.head_dim;
  const double qkv = (model.num_query_heads + 2.0 * model.num_kv_heads) * model.head_dim;
  const double layers = model.num_layers;

  const double projection_flops = 2 * tokens * width * (qkv + query);
  const double unembed_flops = 2 * tokens * width * model.vocab_size;
  const double attention_flops = 4 * tokens * seq * query;

  // Per GEMM: the forward one, that of the input's gradient and, unless it is frozen, that of the
  // weight's.
  constexpr double kForwardAndBackward = 3, kFrozen = 2;
  constexpr double kTera = 1e12;
  StepTflops tflops;
  // Preference tuning scores each batch with the reference model and with the policy first.
  const double scoring = config.dpo.enabled ? 2 : 0;
  const double passes = (kForwardAndBackward + scoring) * config.gradient_accumulation_steps;
  const double of_weights =
      model.lora.enabled() ? (kFrozen + scoring) * config.gradient_accumulation_steps : passes;
  tflops.learnable =
      (of_weights * (mlp_flops(model, tokens) + projection_flops * layers + unembed_flops) +
       passes * adapter_flops(model, tokens)) /
      kTera;
  tflops.attention = passes * attention_flops * layers / kTera;
  tflops.attention_causal = tflops.attention / 2;
  return tflops;
}

}  // namespace muster::trainer
