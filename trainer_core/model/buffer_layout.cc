#include "trainer_core/model/buffer_layout.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/check.h"
#include "trainer_core/model/adapter_memory.h"
#include "trainer_core/model/exchange_plan.h"
#include "trainer_core/model/expert_memory.h"
#include "trainer_core/model/head_rows.h"
#include "trainer_core/model/stage_plan.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {
namespace {

class Planner {
 public:
  explicit Planner(TransformerPlan& plan)
      : plan_(plan),
        model_(plan.model),
        rows_(plan.token_count()),
        own_rows_(plan.own_rows()),
        width_(model_.emb_dim),
        shape_(plan.attention_shape()),
        norm_(plan.norm_shape()) {}

  void blocks(int64_t optimizer_state) {
    if (plan_.rounds_params()) {
      const int64_t bytes = rounded_params(plan_.sharding.layout.table()).bytes;
      plan_.param_block = add("params", MemoryCategory::kParameters, bytes, DType::kI8);
      return;
    }
    plan_.param_block = add("params", MemoryCategory::kParameters,
                            plan_.stored_floats() + scaling_elements(model_));
    add_frozen_blocks(plan_);
    if (plan_.sharding.has_reference)
      plan_.reference_block = add("reference", MemoryCategory::kParameters, plan_.stored_floats());
    if (plan_.training) {
      plan_.grad_block = add("grads", MemoryCategory::kGradients, plan_.stored_parameters());
      plan_.optimizer_state = add("optimizer_state", MemoryCategory::kOptimizer, optimizer_state);
    }
    plan_.blocks =
        plan_blocks(plan_.sharding, model_.logits_via_embedding, plan_.training, plan_.param_block,
                    plan_.grad_block, plan_.frozen_block, plan_.memory);
  }

  // Adds the tensors that layers save on the device.
  void kept() {
    plan_.layers.resize(plan_.run_length() * static_cast<size_t>(plan_.pipeline().slots));
    if (!plan_.training) return;
    for (size_t i = 0; i < plan_.layers.size(); ++i) {
      for (const LayerTensor& tensor : largest_tensors(i)) {
        if (tensor.placement != Placement::kDevice) continue;
        plan_.layers[i].*tensor.id =
            add(name_at(plan_, i) + tensor.name, MemoryCategory::kActivations, tensor.elements,
                tensor.dtype);
      }
    }
  }

  // Adds the buffers that layers share. They contain the tensors of the last layer from its forward
  // pass to its backward pass, while the head is computed.
  void shared() {
    using Buffers = LayerBuffers;
    const bool parallel = model_.parallel_block;
    if (plan_.training) {
      share({&Buffers::input, &Buffers::stats1, &Buffers::normed1, &Buffers::qkv, &Buffers::context,
             &Buffers::lse});
      if (parallel) share({&Buffers::middle});  // holds a gradient until attention's is computed
      // Attention's backward buffers overlap with the MLP's and the head's: a layer's backward pass
      // reaches attention after its MLP and the head, its forward pass reaches the MLP after
      // attention.
      plan_.memory.overlay(
          [&] {
            if (!parallel) share({&Buffers::middle});
            share({&Buffers::stats2, &Buffers::normed2, &Buffers::gate_up, &Buffers::act});
            share_routing();
            add_expert_work(plan_);
            if (!plan_.pipeline().ends_model()) return;
            plan_.output = add_stream("output");
            add_logits();
          },
          [&] {
            plan_.d_context = add_activation_buffer("d_context", shape_.out_width());
            plan_.d_qkv = add_activation_buffer("d_qkv", shape_.qkv_width());
            plan_attention_exchange(plan_);
          });
      // The gradient of the residual stream is not needed before the head is done.
      plan_.memory.overlay(
          [&] {
            if (plan_.pipeline().ends_model()) plan_.final_normed = add_stream("final_normed");
          },
          [&] { plan_.d_stream = add_stream("d_stream"); });
    } else {
      share({&Buffers::middle});
      // Nothing reads the residual stream later, so it is updated in place.
      for (LayerBuffers& layer : plan_.layers) layer.input = layer.middle;
      plan_.output = plan_.layers.back().middle;
      const auto share_norm1 = [&] { share({&Buffers::stats1, &Buffers::normed1}); };
      if (parallel) share_norm1();
      // Attention, the MLP and the head use the memory one after the other.
      plan_.memory.overlay(
          [&] {
            if (!parallel) share_norm1();
            share({&Buffers::qkv, &Buffers::context, &Buffers::lse});
            plan_attention_exchange(plan_);
          },
          [&] {
            share({&Buffers::stats2, &Buffers::normed2, &Buffers::gate_up, &Buffers::act});
            share_routing();
            add_expert_work(plan_);
          },
          [&] {
            if (plan_.pipeline().ends_model()) add_logits();
          });
      if (plan_.pipeline().ends_model()) plan_.final_normed = add_stream("final_normed");
    }
    if (!parallel) return;
    for (LayerBuffers& layer : plan_.layers) {
      layer.stats2 = layer.stats1;
      layer.normed2 = layer.normed1;
    }
  }

  void caches() {
    if (!plan_.decodes()) return;
    const int64_t rows = plan_.cache.blocks * shape_.kv_heads * CacheSize::kBlockPositions;
    for (size_t i = 0; i < plan_.layers.size(); ++i) {
      const auto cache = [&](const char* what, int64_t width, DType dtype) {
        return add(absl::StrCat("layer", i, what), MemoryCategory::kKvCache, rows * width, dtype);
      };
      const DType dtype = plan_.cache.is_int8 ? DType::kI8 : plan_.dtype;
      CacheBuffers& buffers = plan_.caches.emplace_back();
      buffers.keys = cache(".keys", model_.head_dim, dtype);
      buffers.values = cache(".values", model_.head_dim, dtype);
      if (!plan_.cache.is_int8) continue;
      buffers.key_scales = cache(".key_scales", 1, DType::kF32);
      buffers.value_scales = cache(".value_scales", 1, DType::kF32);
    }
  }

  void rest() {
    const bool ends_model = plan_.pipeline().ends_model();
    if (ends_model) plan_.final_stats = add_work("final_stats", norm_.stats(own_rows_));
    plan_.delta = add_stream("delta");
    plan_.tokens = add_work("tokens", rows_);
    if (plan_.decodes()) {
      paged();
    } else {
      plan_.targets = add_work("targets", rows_);
      plan_.weights = add_work("weights", rows_);
      if (plan_.packed) plan_.starts = add_work("starts", rows_);
      if (ends_model) plan_.losses = add_work("losses", rows_);
    }
    if (!model_.has_rope()) return;
    const int64_t table = int64_t{plan_.positions()} * model_.head_dim / 2;
    plan_.rope_cos = add_work("rope_cos", table);
    plan_.rope_sin = add_work("rope_sin", table);
  }

  void paged() {
    PagedBuffers& buffers = plan_.paged;
    buffers.sequences = add_work("paged.sequences", rows_);
    buffers.positions = add_work("paged.positions", rows_);
    buffers.blocks = add_work("paged.blocks",
                              int64_t{plan_.cache.sequences} * plan_.cache.blocks_per_sequence());
    buffers.logits_rows = add_work("paged.logits_rows", rows_);
    if (model_.learns_positions()) buffers.learned = add_work("paged.learned", rows_ * width_);
    if (!model_.has_rope()) return;
    buffers.rope_cos = add_work("paged.rope_cos", rows_ * model_.head_dim / 2);
    buffers.rope_sin = add_work("paged.rope_sin", rows_ * model_.head_dim / 2);
  }

  void quantized() {
    const QuantizationConfig& quantization = model_.quantization;
    if (!quantization.enabled()) return;
    int64_t widest_in = 0, widest_out = 0, largest = 0;
    for (size_t i = 0; i < kDenseProducts; ++i) {
      const DenseShape shape = plan_.dense_shape(static_cast<DenseProduct>(i));
      widest_in = std::max(widest_in, shape.in);
      widest_out = std::max(widest_out, shape.out);
      largest = std::max(largest, shape.in * shape.out);
    }
    const bool is_int8 = quantization.type == QuantizationType::kInt8;
    const bool kernel_gradients = plan_.training && !model_.lora.enabled() &&
                                  (!is_int8 || quantization.int8_weight_gradients);
    QuantizedBuffers& buffers = plan_.quantized;
    buffers.input = add_activation_buffer("quantized.input", widest_in);
    if (plan_.training)
      buffers.output_gradient = add_activation_buffer("quantized.output_gradient", widest_out);
    buffers.kernel =
        add_work("quantized.kernel", largest, kernel_gradients ? DType::kF32 : plan_.dtype);
    if (scaling_scales(model_) > 0) {
      if (plan_.training) buffers.amax = add_work("quantized.amax", scaling_scales(model_));
      return;
    }
    const int64_t left = kernel_gradients ? std::max(rows_, widest_out) : rows_;
    const int64_t right = plan_.training ? std::max(widest_in, widest_out) : widest_out;
    buffers.left_scale = add_work("quantized.left_scale", is_int8 ? left : 1);
    buffers.right_scale = add_work("quantized.right_scale", is_int8 ? right : 1);
  }

  void workspace(int32_t threads) {
    int64_t elements = attention_workspace(threads);
    if (plan_.training) {
      elements = std::max({elements, cpu_norm_backward_elements(width_),
                           cpu_bias_backward_elements(widest_bias()), row_sort_elements(rows_)});
    }
    plan_.workspace_elements = elements;
    plan_.workspace = add_work("workspace", elements);
  }

  void offloaded() {
    plan_.memory.begin_host();
    plan_.device_bytes = plan_.memory.device_bytes();
    if (!plan_.training) return;
    for (size_t i = 0; i < plan_.layers.size(); ++i) {
      if (plan_.is_last(layers_at(plan_, i).front())) continue;
      LayerBuffers& layer = plan_.layers[i];
      for (const LayerTensor& tensor : largest_tensors(i)) {
        if (tensor.placement != Placement::kOffload) continue;
        const BufferId host = add(name_at(plan_, i) + tensor.name, MemoryCategory::kOffloaded,
                                  tensor.elements, tensor.dtype);
        const bool is_mlps =
            tensor.id == &LayerBuffers::middle || tensor.id == &LayerBuffers::gate_up;
        layer.offloaded.push_back(
            {layer.*tensor.id, host, tensor.elements, tensor.dtype, !is_mlps});
      }
    }
  }

 private:
  int64_t attention_workspace(int32_t threads) const {
    if (!plan_.decodes()) return attention_elements(plan_, threads);
    const int32_t positions = plan_.cache.blocks_per_sequence() * CacheSize::kBlockPositions;
    return cpu_attention_paged_elements(shape_, positions, threads);
  }
  BufferId add(std::string name, MemoryCategory category, int64_t elements,
               DType dtype = DType::kF32) {
    return plan_.memory.add(std::move(name), category,
                            static_cast<size_t>(elements) * dtype_bytes(dtype));
  }

  BufferId add_work(std::string name, int64_t elements, DType dtype = DType::kF32) {
    return add(std::move(name), MemoryCategory::kWorkspace, elements, dtype);
  }
  // (T, width)
  BufferId add_activation_buffer(std::string name, int64_t width) {
    return add_work(std::move(name), rows_ * width, plan_.dtype);
  }
  // (T', d)
  BufferId add_stream(std::string name) {
    return add_work(std::move(name), own_rows_ * width_, plan_.dtype);
  }
  void add_logits() {
    const int64_t elements = plan_.head_rows * plan_.vocabulary().count;
    plan_.logits = plan_.d_logits = add_work("logits", elements);
    // Two GEMMs read the gradient: its rounded copy is written once.
    if (plan_.training && plan_.dtype != DType::kF32)
      plan_.d_logits = add_work("d_logits", elements, plan_.dtype);
  }

  int64_t gate_up_width() const {
    return plan_.activation().input_width(plan_.mlp_columns().count);
  }
  // Returns 0 if the model has no bias.
  int64_t widest_bias() const {
    return std::max({model_.qkv_bias ? shape_.qkv_width() : 0,
                     model_.mlp_bias ? std::max(gate_up_width(), width_) : 0,
                     model_.out_bias ? width_ : 0});
  }

  // Returns a layer's tensors, in the order in which its forward pass computes them.
  std::vector<LayerTensor> layer_tensors(size_t layer) const {
    const LayerPlacements& placements = plan_.placements;
    const DType dtype = plan_.dtype, kF32 = DType::kF32;
    using Buffers = LayerBuffers;
    std::vector<LayerTensor> tensors = {
        {"input", &Buffers::input, own_rows_ * width_, dtype, placements.input},
        {"stats1", &Buffers::stats1, norm_.stats(own_rows_), kF32, placements.rest},
        {"normed1", &Buffers::normed1, own_rows_ * width_, dtype, placements.rest},
        {"qkv", &Buffers::qkv, rows_ * shape_.qkv_width(), dtype, placements.qkv},
        {"context", &Buffers::context, rows_ * shape_.out_width(), dtype, placements.context},
        {"lse", &Buffers::lse, plan_.decodes() ? 0 : rows_ * shape_.heads, kF32,
         placements.context},
        // In a parallel block nothing reads it after the forward pass.
        {"middle", &Buffers::middle, own_rows_ * width_, dtype,
         model_.parallel_block ? Placement::kRemat : placements.middle}};
    if (!model_.parallel_block) {
      tensors.push_back(
          {"stats2", &Buffers::stats2, norm_.stats(own_rows_), kF32, placements.rest});
      tensors.push_back({"normed2", &Buffers::normed2, own_rows_ * width_, dtype, placements.rest});
    }
    if (!model_.experts.in_layer(static_cast<int64_t>(layer))) {
      tensors.push_back(
          {"gate_up", &Buffers::gate_up, rows_ * gate_up_width(), dtype, placements.gate_up});
      tensors.push_back(
          {"act", &Buffers::act, rows_ * plan_.mlp_columns().count, dtype, placements.rest});
      return tensors;
    }
    std::ranges::move(expert_tensors(plan_), std::back_inserter(tensors));
    return tensors;
  }

  // Returns, for each tensor, the largest one of the layers that use index `i`.
  std::vector<LayerTensor> largest_tensors(size_t i) const {
    std::vector<LayerTensor> all;
    for (const size_t layer : layers_at(plan_, i)) {
      for (const LayerTensor& tensor : layer_tensors(layer)) {
        const auto same = std::ranges::find_if(
            all, [&](const LayerTensor& other) { return other.id == tensor.id; });
        if (same == all.end()) {
          all.push_back(tensor);
        } else {
          same->elements = std::max(same->elements, tensor.elements);
        }
      }
    }
    return all;
  }

  // Adds a buffer for each of the tensors, which all layers share that do not save the tensor on
  // the device. It is as large as the largest of these tensors.
  void share(std::initializer_list<BufferId LayerBuffers::*> ids) {
    for (BufferId LayerBuffers::*id : ids) {
      const char* name = nullptr;
      int64_t elements = 0;
      DType dtype = DType::kF32;
      std::vector<LayerBuffers*> sharers;
      for (size_t i = 0; i < plan_.layers.size(); ++i) {
        for (const LayerTensor& tensor : largest_tensors(i)) {
          if (tensor.id != id || tensor.placement == Placement::kDevice) continue;
          if (tensor.elements == 0) continue;
          dtype = tensor.dtype;
          name = tensor.name;
          elements = std::max(elements, tensor.elements);
          sharers.push_back(&plan_.layers[i]);
        }
      }
      if (sharers.empty()) continue;
      const BufferId buffer = add_work(absl::StrCat("shared.", name), elements, dtype);
      for (LayerBuffers* layer : sharers) layer->*id = buffer;
    }
  }
  // Does the same for the results of routers.
  void share_routing() {
    if (model_.experts.count <= 1) return;
    for (const LayerTensor& tensor : routing_tensors(plan_)) share({tensor.id});
  }

  TransformerPlan& plan_;
  const ModelConfig& model_;
  int64_t rows_;      // T
  int64_t own_rows_;  // T'
  int64_t width_;
  AttentionShape shape_;
  NormShape norm_;
};

}  // namespace

void lay_out(TransformerPlan& plan, int32_t threads, int64_t optimizer_state) {
  MUSTER_CHECK(plan.batch >= 1 && plan.seq_len >= 1 && threads >= 1)
      << "batch " << plan.batch << ", sequence " << plan.seq_len << ", threads " << threads;
  plan.head_rows = head_rows(largest_share(plan.model.vocab_size, plan.part().tensor.ranks),
                             plan.token_count(), plan.batch, plan.part().logits_bytes);
  Planner planner(plan);
  planner.blocks(optimizer_state);
  planner.kept();
  add_expert_counts(plan);
  planner.caches();
  planner.shared();
  planner.rest();
  plan_stage(plan);
  plan_exchange(plan);
  add_expert_constants(plan);
  planner.quantized();
  add_adapter_buffers(plan);
  planner.workspace(threads);
  planner.offloaded();
}

}  // namespace muster::trainer
