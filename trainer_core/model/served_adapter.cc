#include "trainer_core/model/served_adapter.h"

#include <algorithm>
#include <string>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/bf16.h"
#include "trainer_core/base/check.h"
#include "trainer_core/model/transformer_plan.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {
namespace {

// Returns this rank's part of a dimension of a projection.
Share part_of_dimension(const TransformerPlan& plan, const TensorSplit& split, int64_t extent) {
  if (split.units == 0) return {0, extent};
  const Share units = share_of(split.units, plan.part().tensor);
  const int64_t each = extent / split.units;
  return {units.first * each, units.count * each};
}

// The matrices of a projection's adapter.
struct AdapterMatrices {
  std::span<const float> a, b;
};
AdapterMatrices matrices_of(std::span<const ParamSpec> table, std::span<const float> values,
                            const std::string& module) {
  const auto find = [&](const char* matrix) {
    const auto found = std::ranges::find(
        table, absl::StrCat(module, matrix), [](const ParamSpec& s) -> auto& { return s.name; });
    MUSTER_CHECK(found != table.end()) << module << " has no adapter";
    return values.subspan(static_cast<size_t>(found->offset),
                          static_cast<size_t>(found->elements()));
  };
  return {find(".lora_A.weight"), find(".lora_B.weight")};
}

// Fills the matrices of one GEMM in `block`, which is zero.
void fill_product(const TransformerPlan& plan, const LoraConfig& lora, int32_t layer,
                  DenseProduct product, const ServedProduct& where,
                  std::span<const ParamSpec> table, std::span<const float> values,
                  std::span<float> block) {
  const auto scale = static_cast<float>(lora.scale());
  const int64_t in = plan.dense_shape(product).in;
  int64_t row = 0, column = 0;
  for (const AdaptedProjection& projection : adapted_projections(plan.model, layer, product)) {
    const ProjectionShape whole = projection_shape(plan.model, projection.target);
    const Share rows = part_of_dimension(plan, projection.out_split, whole.out);
    const Share inputs = part_of_dimension(plan, projection.in_split, whole.in);
    if (lora.adapts(projection.target)) {
      const AdapterMatrices from = matrices_of(table, values, projection.module);
      MUSTER_CHECK(inputs.count == in) << projection.module << ": " << inputs.count << " inputs";
      for (int64_t k = 0; k < lora.rank; ++k) {
        const auto first = static_cast<size_t>(k * whole.in + inputs.first);
        std::ranges::copy(from.a.subspan(first, static_cast<size_t>(in)),
                          block.begin() + where.a + (column + k) * in);
      }
      for (int64_t i = 0; i < rows.count; ++i) {
        for (int64_t k = 0; k < lora.rank; ++k) {
          block[static_cast<size_t>(where.b + (row + i) * where.columns + column + k)] =
              scale * from.b[static_cast<size_t>((rows.first + i) * lora.rank + k)];
        }
      }
      column += lora.rank;
    }
    row += rows.count;
  }
}

}  // namespace

void plan_served_adapters(TransformerPlan& plan) {
  if (plan.served.empty()) return;
  AdapterBuffers& buffers = plan.adapters;
  buffers.chunk_rows = std::min(plan.token_count(), kAdapterRows);
  int64_t columns = 0, wide = 0;
  for (size_t i = 0; i < plan.served.size(); ++i) {
    ServedAdapter& adapter = plan.served[i];
    adapter.layers.resize(static_cast<size_t>(plan.model.num_layers));
    for (int32_t layer = 0; layer < plan.model.num_layers; ++layer) {
      for (size_t p = 0; p < kDenseProducts; ++p) {
        const auto product = static_cast<DenseProduct>(p);
        const auto adapted = std::ranges::count_if(
            adapted_projections(plan.model, layer, product),
            [&](const AdaptedProjection& one) { return adapter.lora.adapts(one.target); });
        if (adapted == 0) continue;
        const DenseShape shape = plan.dense_shape(product);
        ServedProduct& where = adapter.layers[static_cast<size_t>(layer)][p];
        where.columns = adapted * adapter.lora.rank;
        where.a = adapter.elements;
        where.b = where.a + where.columns * shape.in;
        adapter.elements = where.b + where.columns * shape.out;
        columns = std::max(columns, where.columns);
        wide = std::max(wide, shape.out);
      }
    }
    adapter.block =
        plan.memory.add(absl::StrCat("adapter", i), MemoryCategory::kParameters,
                        static_cast<size_t>(adapter.elements) * dtype_bytes(plan.dtype));
  }
  const auto add = [&](const char* name, int64_t width) {
    return plan.memory.add(
        name, MemoryCategory::kWorkspace,
        static_cast<size_t>(buffers.chunk_rows * width) * dtype_bytes(plan.dtype));
  };
  buffers.low = add("adapters.low", columns);
  if (plan.dtype != DType::kF32) buffers.wide = add("adapters.wide", wide);
}

void load_served_adapter(const TransformerPlan& plan, size_t index,
                         std::span<const ParamSpec> table, std::span<const float> values,
                         Arena& arena, Ops& ops) {
  const ServedAdapter& adapter = plan.served[index];
  std::vector<float> block(static_cast<size_t>(adapter.elements));
  for (int32_t layer = 0; layer < plan.model.num_layers; ++layer) {
    for (size_t p = 0; p < kDenseProducts; ++p) {
      const ServedProduct& where = adapter.layers[static_cast<size_t>(layer)][p];
      if (where.columns == 0) continue;
      fill_product(plan, adapter.lora, layer, static_cast<DenseProduct>(p), where, table, values,
                   block);
    }
  }
  const Tensor to = Tensor::of(plan.dtype, arena.buffer(adapter.block), {adapter.elements});
  if (plan.dtype == DType::kF32) return ops.upload(block.data(), to);
  std::vector<Bf16> rounded(block.size());
  std::ranges::transform(block, rounded.begin(), Bf16::round);
  ops.upload(rounded.data(), to);
}

}  // namespace muster::trainer
