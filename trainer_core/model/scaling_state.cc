#include "trainer_core/model/scaling_state.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster::trainer {
namespace {

constexpr std::array<std::string_view, kDenseOperands> kOperandNames = {"input", "kernel",
                                                                        "output_grad"};

std::string_view product_name(const ModelConfig& config, size_t product) {
  switch (static_cast<DenseProduct>(product)) {
    case DenseProduct::kQkv:
      return "self_attn.qkv_proj";
    case DenseProduct::kOut:
      return "self_attn.o_proj";
    case DenseProduct::kGateUp:
      return config.gated_mlp ? "mlp.gate_up_proj" : "mlp.up_proj";
    case DenseProduct::kDown:
      return "mlp.down_proj";
  }
  return "";
}

// Calls body(name) for each scale, in the order of the block.
template <class Body>
void for_each_scale(const ModelConfig& config, const Body& body) {
  if (scaling_scales(config) == 0) return;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    for (size_t product = 0; product < kDenseProducts; ++product) {
      for (const std::string_view operand : kOperandNames) {
        body(absl::StrCat("model.layers.", layer, ".", av(product_name(config, product)), ".",
                          av(operand)));
      }
    }
  }
}

}  // namespace

int64_t scaling_scales(const ModelConfig& config) {
  if (config.quantization.type != QuantizationType::kFp8Delayed) return 0;
  return config.num_layers * static_cast<int64_t>(kDenseProducts * kDenseOperands);
}

int64_t scaling_elements(const ModelConfig& config) {
  return scaling_scales(config) * (1 + int64_t{config.quantization.amax_history_length});
}

std::vector<TensorRow> model_rows(const std::vector<ParamSpec>& table, const ModelConfig& config,
                                  DType stored) {
  std::vector<TensorRow> rows(table.begin(), table.end());
  for (TensorRow& row : rows) row.dtype = stored;
  int64_t offset = floats_of(parameter_count(table), stored);
  const auto add = [&](std::string name, int64_t elements) {
    rows.push_back({std::move(name), {elements}, offset});
    offset += elements;
  };
  for_each_scale(config, [&](const std::string& name) { add(name + "_scale", 1); });
  for_each_scale(config, [&](const std::string& name) {
    add(name + "_amax_history", config.quantization.amax_history_length);
  });
  return rows;
}

ShardedTensors model_tensors(const ShardLayout& layout, const ModelConfig& config) {
  ShardedTensors model;
  model.tensors = model_rows(layout.table(), config, layout.stored());
  model.held = model.written = layout.stored_boxes();
  const auto& pieces = layout.pieces();
  // The rank with the first element of the first tensor. Ranks may split any of its dimensions.
  const bool writes =
      !pieces.empty() && pieces.front().param == 0 && pieces.front().first == 0 &&
      std::ranges::all_of(layout.row(pieces.front()).box.begin, [](int64_t at) { return at == 0; });
  for (size_t i = layout.table().size(); i < model.tensors.size(); ++i) {
    TensorBox box = whole_box(model.tensors[i]);
    box.offset +=
        layout.stored_floats() - floats_of(parameter_count(layout.table()), layout.stored());
    model.held.push_back(box);
    if (writes) model.written.push_back(std::move(box));
  }
  return model;
}

}  // namespace muster::trainer
