#include "trainer_core/model/plan_builder.h"

#include "trainer_core/base/check.h"
#include "trainer_core/model/buffer_layout.h"

namespace muster::trainer {
namespace {

void check_part(const TransformerPlan& plan) {
  const int32_t tensor = plan.part().tensor.ranks;
  MUSTER_CHECK(plan.decodes() || plan.token_count() % tensor == 0)
      << plan.token_count() << " rows on " << tensor << " ranks";
  MUSTER_CHECK(plan.own_positions().count() * plan.part().sequence_sharers() == plan.seq_len)
      << plan.seq_len << " positions on " << plan.part().sequence_sharers() << " ranks";
  MUSTER_CHECK(!plan.decodes() ||
               !(plan.part().sequence_sharers() > 1 || plan.part().splits_experts() ||
                 plan.pipeline().stage.ranks > 1))
      << "decoding with other axes than tensor";
  MUSTER_CHECK(!plan.model.quantization.enabled() || !plan.stacks_qkv())
      << "quantized GEMMs of KV heads on several ranks";
  const PipelinePart& pipeline = plan.pipeline();
  MUSTER_CHECK(plan.model.num_layers % (pipeline.stage.ranks * pipeline.chunks) == 0)
      << plan.model.num_layers << " layers in " << pipeline.stage.ranks << " stages";
  MUSTER_CHECK(!pipeline.has_all_layers() || pipeline.slots * pipeline.chunks == 1)
      << "slots of a pipeline";
  MUSTER_CHECK(plan.training || pipeline.slots == 1) << "slots of a forward pass";
}

}  // namespace

TransformerPlan build_transformer_plan(const ModelConfig& model, int32_t batch, int32_t seq_len,
                                       DType dtype, const LayerPlacements& placements,
                                       bool training, int32_t threads, int64_t optimizer_state,
                                       bool packed, const std::optional<Sharding>& sharding) {
  MUSTER_CHECK(placements.input != Placement::kRemat && placements.rest != Placement::kOffload)
      << "a layer without its input, or norms in the host's memory";
  TransformerPlan plan;
  plan.model = model;
  plan.params = model_params(model);
  MUSTER_CHECK(sharding || model.lora.weight_type == WeightType::kPlain)
      << "weights in blocks without a layout of their copies";
  plan.sharding =
      sharding.value_or(Sharding{ShardLayout::whole(plan.params),
                                 ShardLayout::whole(plan.params, DType::kF32, ParamPart::kFrozen)});
  plan.batch = batch, plan.seq_len = seq_len;
  plan.dtype = dtype;
  plan.placements = training ? placements : LayerPlacements{};
  plan.training = training, plan.packed = packed;
  check_part(plan);
  lay_out(plan, threads, training ? optimizer_state : 0);
  return plan;
}

TransformerPlan plan_decoder(const ModelConfig& model, int32_t rows, const CacheSize& cache,
                             int32_t threads, DType dtype, std::span<const LoraConfig> adapters,
                             AxisCoordinate tensor) {
  MUSTER_CHECK(!model.lora.enabled() || adapters.empty())
      << "adapters beside a model with adapters";
  TransformerPlan plan;
  plan.model = model;
  plan.params = model_params(model);
  plan.sharding.layout = ShardLayout::whole(tensor_part_of(plan.params, tensor));
  plan.sharding.part.tensor = tensor;
  plan.batch = 1;
  plan.dtype = dtype;
  plan.seq_len = rows;
  plan.training = false;
  plan.cache = cache;
  for (const LoraConfig& lora : adapters) plan.served.emplace_back().lora = lora;
  check_part(plan);
  lay_out(plan, threads, 0);
  return plan;
}

}  // namespace muster::trainer
