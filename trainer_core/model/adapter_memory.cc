#include "trainer_core/model/adapter_memory.h"

#include <algorithm>

namespace muster::trainer {

void add_frozen_blocks(TransformerPlan& plan) {
  const auto add = [&](const char* name, int64_t bytes) {
    return plan.memory.add(name, MemoryCategory::kParameters, static_cast<size_t>(bytes));
  };
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  const ShardLayout& frozen = plan.sharding.frozen;
  if (frozen.elements() > 0) plan.frozen_block = add("frozen", frozen.stored_floats() * kFloat);
  const int64_t elements = plan.sharding.quantized.elements();
  if (elements == 0) return;
  plan.code_block = add("frozen.codes", code_bytes(plan.model.lora.weight_type, elements));
  plan.scale_block = add("frozen.scales", elements / kWeightBlock * kFloat);
}

void add_adapter_buffers(TransformerPlan& plan) {
  const LoraConfig& lora = plan.model.lora;
  if (!lora.enabled()) return plan_served_adapters(plan);
  const int64_t rows = plan.token_count();
  AdapterBuffers& buffers = plan.adapters;
  buffers.chunk_rows = std::min(rows, kAdapterRows);
  int64_t columns = 0, wide = 0, matrix = 0;
  for (size_t i = 0; i < kDenseProducts; ++i) {
    const auto product = static_cast<DenseProduct>(i);
    const int64_t low = plan.adapters_of(product) * lora.rank;
    if (low == 0) continue;
    const DenseShape shape = plan.dense_shape(product);
    columns = std::max(columns, low);
    if (plan.projections_of(product) > 1) matrix = std::max(matrix, shape.out * low);
    if (lora.dropout > 0) wide = std::max(wide, shape.in);
    if (plan.dtype != DType::kF32)
      wide = std::max(wide, plan.training ? std::max(shape.in, shape.out) : shape.out);
  }
  const auto add = [&](const char* name, int64_t elements, DType dtype) {
    return plan.memory.add(name, MemoryCategory::kWorkspace,
                           static_cast<size_t>(elements) * dtype_bytes(dtype));
  };
  buffers.low = add("adapters.low", buffers.chunk_rows * columns, plan.dtype);
  if (wide > 0) buffers.wide = add("adapters.wide", buffers.chunk_rows * wide, plan.dtype);
  if (matrix > 0) buffers.b = add("adapters.b", matrix, DType::kF32);
  if (!plan.training) return;
  buffers.d_low = add("adapters.d_low", rows * columns, plan.dtype);
  if (matrix > 0) buffers.d_b = add("adapters.d_b", matrix, DType::kF32);
}

}  // namespace muster::trainer
