// Lays out one rank's step: what is kept from forward to backward, what is shared, how large the
// scratch is.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/check.h"
#include "trainer_core/model/transformer.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {
namespace {

// The chunk of logits: large enough that its products run at full speed, small enough to stay in a
// last-level cache between them.
constexpr int64_t kHeadChunkBytes = 16 << 20;
constexpr int64_t kHeadRowsMin = 64;

class Planner {
 public:
  explicit Planner(TransformerPlan& plan)
      : plan_(plan),
        model_(plan.model),
        rows_(int64_t{plan.batch} * plan.seq_len),
        width_(model_.emb_dim),
        shape_(plan.attention_shape()),
        norm_(plan.norm_shape()) {}

  void blocks(int64_t optimizer_state) {
    const int64_t n = parameter_count(plan_.params);
    plan_.param_block = add("params", MemoryCategory::kParameters, n);
    if (!plan_.training) return;
    plan_.grad_block = add("grads", MemoryCategory::kGradients, n + kGradTailElements);
    plan_.optimizer_state = add("optimizer_state", MemoryCategory::kOptimizer, optimizer_state);
  }

  // What layers keep on the device.
  void kept() {
    plan_.layers.resize(static_cast<size_t>(model_.num_layers));
    if (!plan_.training) return;
    for (size_t i = 0; i < plan_.layers.size(); ++i) {
      for (const LayerTensor& tensor : layer_tensors()) {
        if (tensor.placement != Placement::kDevice) continue;
        plan_.layers[i].*tensor.id = add(absl::StrCat("layer", i, ".", tensor.name),
                                         MemoryCategory::kActivations, tensor.elements);
      }
    }
  }

  // What layers share. The last layer's tensors lie there from forward to backward; meanwhile the head does its work.
  void shared() {
    using Buffers = LayerBuffers;
    if (plan_.training) {
      share({&Buffers::input, &Buffers::stats1, &Buffers::normed1, &Buffers::qkv, &Buffers::context,
             &Buffers::lse});
      // When a layer's backward pass comes to attention, it is through with its MLP, and with the head long since.
      plan_.memory.overlay(
          [&] {
            share({&Buffers::middle, &Buffers::stats2, &Buffers::normed2, &Buffers::gate_up,
                   &Buffers::act});
            plan_.output = add_work("output", rows_ * width_);
            add_logits();
          },
          [&] {
            plan_.d_context = add_work("d_context", rows_ * shape_.out_width());
            plan_.d_qkv = add_work("d_qkv", rows_ * shape_.qkv_width());
          });
      // The stream's gradient begins where the head's work ends.
      plan_.memory.overlay([&] { plan_.final_normed = add_work("final_normed", rows_ * width_); },
                           [&] { plan_.d_stream = add_work("d_stream", rows_ * width_); });
    } else {
      share({&Buffers::middle});
      // Nothing reads the stream later: it is updated in place.
      for (LayerBuffers& layer : plan_.layers) layer.input = layer.middle;
      plan_.output = plan_.layers.back().middle;
      // Attention, the MLP and the head take turns.
      plan_.memory.overlay(
          [&] {
            share({&Buffers::stats1, &Buffers::normed1, &Buffers::qkv, &Buffers::context,
                   &Buffers::lse});
          },
          [&] {
            share({&Buffers::stats2, &Buffers::normed2, &Buffers::gate_up, &Buffers::act});
          },
          [&] { add_logits(); });
      plan_.final_normed = add_work("final_normed", rows_ * width_);
    }
  }

  void caches() {
    if (plan_.cache_capacity == 0) return;
    const int64_t elements =
        int64_t{plan_.batch} * model_.num_kv_heads * plan_.cache_capacity * model_.head_dim;
    for (size_t i = 0; i < plan_.layers.size(); ++i) {
      const std::string name = absl::StrCat("layer", i);
      plan_.caches.push_back({add(name + ".keys", MemoryCategory::kKvCache, elements),
                              add(name + ".values", MemoryCategory::kKvCache, elements)});
    }
  }

  void rest() {
    plan_.final_stats = add_work("final_stats", norm_.stats(rows_));
    plan_.delta = add_work("delta", rows_ * width_);
    plan_.tokens = add_work("tokens", rows_);
    if (plan_.cache_capacity == 0) {
      plan_.targets = add_work("targets", rows_);
      plan_.weights = add_work("weights", rows_);
      plan_.losses = add_work("losses", rows_);
    }
    if (!model_.has_rope()) return;
    const int64_t table = int64_t{plan_.positions()} * model_.head_dim / 2;
    plan_.rope_cos = add_work("rope_cos", table);
    plan_.rope_sin = add_work("rope_sin", table);
  }

  void workspace(int32_t threads) {
    int64_t elements = plan_.cache_capacity > 0
                           ? cpu_attention_cached_elements(plan_.cache_capacity, threads)
                           : cpu_attention_elements(shape_, threads);
    if (plan_.training) {
      elements =
          std::max({elements, cpu_attention_backward_elements(shape_, threads),
                    cpu_norm_backward_elements(width_), cpu_bias_backward_elements(widest_bias())});
    }
    plan_.workspace_elements = elements;
    plan_.workspace = add_work("workspace", elements);
  }

  void offloaded() {
    plan_.device_bytes = plan_.memory.total_bytes();
    if (!plan_.training) return;
    for (size_t i = 0; i + 1 < plan_.layers.size(); ++i) {
      LayerBuffers& layer = plan_.layers[i];
      for (const LayerTensor& tensor : layer_tensors()) {
        if (tensor.placement != Placement::kOffload) continue;
        const BufferId host = add(absl::StrCat("layer", i, ".", tensor.name),
                                  MemoryCategory::kOffloaded, tensor.elements);
        layer.offloaded.push_back({layer.*tensor.id, host, tensor.elements});
      }
    }
  }

 private:
  BufferId add(std::string name, MemoryCategory category, int64_t elements) {
    return plan_.memory.add(std::move(name), category,
                            static_cast<size_t>(elements) * sizeof(float));
  }

  BufferId add_work(std::string name, int64_t elements) {
    return add(std::move(name), MemoryCategory::kWorkspace, elements);
  }
  void add_logits() { plan_.logits = add_work("logits", plan_.head_rows * model_.vocab_size); }

  int64_t gate_up_width() const { return plan_.activation().input_width(model_.mlp_dim); }
  // 0: the model has no bias.
  int64_t widest_bias() const {
    return std::max({model_.qkv_bias ? shape_.qkv_width() : 0,
                     model_.mlp_bias ? std::max(gate_up_width(), width_) : 0,
                     model_.out_bias ? width_ : 0});
  }

  struct LayerTensor {
    const char* name;
    BufferId LayerBuffers::*id;
    int64_t elements;
    Placement placement;
  };

  // A layer's tensors in the order in which its forward pass makes them.
  std::vector<LayerTensor> layer_tensors() const {
    const LayerKeeps& keeps = plan_.keeps;
    using Buffers = LayerBuffers;
    return {
        {"input", &Buffers::input, rows_ * width_, keeps.input},
        {"stats1", &Buffers::stats1, norm_.stats(rows_), keeps.rest},
        {"normed1", &Buffers::normed1, rows_ * width_, keeps.rest},
        {"qkv", &Buffers::qkv, rows_ * shape_.qkv_width(), keeps.qkv},
        {"context", &Buffers::context, rows_ * shape_.out_width(), keeps.context},
        {"lse", &Buffers::lse, plan_.cache_capacity > 0 ? 0 : rows_ * shape_.heads, keeps.context},
        {"middle", &Buffers::middle, rows_ * width_, keeps.middle},
        {"stats2", &Buffers::stats2, norm_.stats(rows_), keeps.rest},
        {"normed2", &Buffers::normed2, rows_ * width_, keeps.rest},
        {"gate_up", &Buffers::gate_up, rows_ * gate_up_width(), keeps.gate_up},
        {"act", &Buffers::act, rows_ * model_.mlp_dim, keeps.rest}};
  }

  // One buffer for all layers of each tensor named that they do not keep on the device.
  void share(std::initializer_list<BufferId LayerBuffers::*> ids) {
    for (const LayerTensor& tensor : layer_tensors()) {
      if (std::ranges::find(ids, tensor.id) == ids.end()) continue;
      if (tensor.placement == Placement::kDevice || tensor.elements == 0) continue;
      const BufferId id = add_work(absl::StrCat("shared.", tensor.name), tensor.elements);
      for (LayerBuffers& layer : plan_.layers) layer.*tensor.id = id;
    }
  }

  TransformerPlan& plan_;
  const ModelConfig& model_;
  int64_t rows_;
  int64_t width_;
  AttentionShape shape_;
  NormShape norm_;
};

// Whole multiples of the batch's rows are not needed; at least `batch`, which extend() gathers.
int64_t head_rows(const ModelConfig& model, int32_t batch, int32_t seq_len) {
  const int64_t row_bytes = int64_t{model.vocab_size} * static_cast<int64_t>(sizeof(float));
  const int64_t wanted = std::max(kHeadChunkBytes / row_bytes, kHeadRowsMin);
  return std::max<int64_t>(batch, std::min(wanted, int64_t{batch} * seq_len));
}

void lay_out(TransformerPlan& plan, int32_t threads, int64_t optimizer_state) {
  MUSTER_CHECK(plan.batch >= 1 && plan.seq_len >= 1 && threads >= 1)
      << "batch " << plan.batch << ", sequence " << plan.seq_len << ", threads " << threads;
  plan.params = model_params(plan.model);
  plan.head_rows = head_rows(plan.model, plan.batch, plan.seq_len);
  Planner planner(plan);
  planner.blocks(optimizer_state);
  planner.kept();
  planner.caches();
  planner.shared();
  planner.rest();
  planner.workspace(threads);
  planner.offloaded();
}

}  // namespace

AttentionShape TransformerPlan::attention_shape() const {
  return {.batch = batch,
          .seq_len = seq_len,
          .heads = model.num_query_heads,
          .kv_heads = model.num_kv_heads,
          .head_dim = model.head_dim,
          .scale = model.query_scale,
          .soft_cap = model.attn_logits_soft_cap,
          .window = model.sliding_window_size};
}

TransformerPlan plan_transformer(const ModelConfig& model, int32_t batch, int32_t seq_len,
                                 const LayerKeeps& keeps, bool training, int32_t threads,
                                 int64_t optimizer_state) {
  MUSTER_CHECK(keeps.input != Placement::kRemat && keeps.rest != Placement::kOffload)
      << "a layer without its input, or norms in the host's memory";
  TransformerPlan plan;
  plan.model = model;
  plan.batch = batch;
  plan.seq_len = seq_len;
  if (training) plan.keeps = keeps;
  plan.training = training;
  lay_out(plan, threads, training ? optimizer_state : 0);
  return plan;
}

TransformerPlan plan_decoder(const ModelConfig& model, int32_t batch, int32_t chunk,
                             int32_t capacity, int32_t threads) {
  TransformerPlan plan;
  plan.model = model;
  plan.batch = batch;
  plan.seq_len = std::min(chunk, capacity);
  plan.training = false;
  plan.cache_capacity = capacity;
  lay_out(plan, threads, 0);
  return plan;
}

}  // namespace muster::trainer
