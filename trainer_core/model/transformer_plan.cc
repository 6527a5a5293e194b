// Lays out one rank's step: what is kept from forward to backward, what is shared, how large the
// scratch is.
#include <algorithm>
#include <string>
#include <utility>

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

  void blocks() {
    const int64_t n = parameter_count(plan_.params);
    plan_.param_block = add("params", MemoryCategory::kParameters, n);
    if (!plan_.training) return;
    plan_.grad_block = add("grads", MemoryCategory::kGradients, n + kGradTailElements);
  }

  void layers() {
    const bool own = plan_.training && plan_.remat == RematPolicy::kNone;
    LayerBuffers shared;
    if (!own) shared = layer("shared");
    for (int32_t i = 0; i < model_.num_layers; ++i) {
      const std::string name = "layer" + std::to_string(i);
      LayerBuffers buffers = own ? layer(name) : shared;
      if (plan_.training) {
        buffers.input = add(name + ".input", MemoryCategory::kActivations, rows_ * width_);
      } else {
        buffers.input = buffers.middle;  // nothing reads the stream later: it is updated in place
      }
      plan_.layers.push_back(buffers);
    }
    for (int32_t i = 0; i < model_.num_layers && plan_.cache_capacity > 0; ++i) {
      const int64_t elements =
          int64_t{plan_.batch} * model_.num_kv_heads * plan_.cache_capacity * model_.head_dim;
      const std::string name = "layer" + std::to_string(i);
      plan_.caches.push_back({add(name + ".keys", MemoryCategory::kKvCache, elements),
                              add(name + ".values", MemoryCategory::kKvCache, elements)});
    }
    plan_.output = plan_.training ? add("output", MemoryCategory::kActivations, rows_ * width_)
                                  : shared.middle;
  }

  void rest() {
    const auto kActivations = MemoryCategory::kActivations;
    plan_.final_stats = add("final_stats", kActivations, norm_.stats(rows_));
    plan_.final_normed = add("final_normed", kActivations, rows_ * width_);
    plan_.tokens = add("tokens", kActivations, rows_);
    plan_.targets = add("targets", kActivations, rows_);
    plan_.weights = add("weights", kActivations, rows_);
    plan_.losses = add("losses", kActivations, rows_);

    const auto kWorkspace = MemoryCategory::kWorkspace;
    if (model_.has_rope()) {
      const int64_t table = int64_t{plan_.positions()} * model_.head_dim / 2;
      plan_.rope_cos = add("rope_cos", kWorkspace, table);
      plan_.rope_sin = add("rope_sin", kWorkspace, table);
    }
    plan_.logits = add("logits", kWorkspace, plan_.head_rows * model_.vocab_size);
    plan_.delta = add("delta", kWorkspace, rows_ * width_);
    if (!plan_.training) return;
    plan_.d_stream = add("d_stream", kWorkspace, rows_ * width_);
    plan_.d_context = add("d_context", kWorkspace, rows_ * shape_.out_width());
    plan_.d_qkv = add("d_qkv", kWorkspace, rows_ * shape_.qkv_width());
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
    plan_.workspace = add("workspace", MemoryCategory::kWorkspace, elements);
  }

 private:
  BufferId add(std::string name, MemoryCategory category, int64_t elements) {
    return plan_.memory.add(std::move(name), category,
                            static_cast<size_t>(elements) * sizeof(float));
  }

  int64_t gate_up_width() const { return plan_.activation().input_width(model_.mlp_dim); }
  // 0: the model has no bias.
  int64_t widest_bias() const {
    return std::max({model_.qkv_bias ? shape_.qkv_width() : 0,
                     model_.mlp_bias ? std::max(gate_up_width(), width_) : 0,
                     model_.out_bias ? width_ : 0});
  }

  // Everything of a layer but its input.
  LayerBuffers layer(const std::string& name) {
    const auto activation = [&](const char* what, int64_t elements) {
      return add(name + "." + what, MemoryCategory::kActivations, elements);
    };
    LayerBuffers buffers;
    buffers.stats1 = activation("stats1", norm_.stats(rows_));
    buffers.normed1 = activation("normed1", rows_ * width_);
    buffers.qkv = activation("qkv", rows_ * shape_.qkv_width());
    buffers.context = activation("context", rows_ * shape_.out_width());
    if (plan_.cache_capacity == 0) buffers.lse = activation("lse", rows_ * shape_.heads);
    buffers.middle = activation("middle", rows_ * width_);
    buffers.stats2 = activation("stats2", norm_.stats(rows_));
    buffers.normed2 = activation("normed2", rows_ * width_);
    buffers.gate_up = activation("gate_up", rows_ * gate_up_width());
    buffers.act = activation("act", rows_ * model_.mlp_dim);
    return buffers;
  }

  TransformerPlan& plan_;
  const ModelConfig& model_;
  int64_t rows_;
  int64_t width_;
  AttentionShape shape_;
  NormShape norm_;
};

// Whole multiples of the batch's rows are not needed; at least `batch`, which logits() gathers.
int64_t head_rows(const ModelConfig& model, int32_t batch, int32_t seq_len) {
  const int64_t row_bytes = int64_t{model.vocab_size} * static_cast<int64_t>(sizeof(float));
  const int64_t wanted = std::max(kHeadChunkBytes / row_bytes, kHeadRowsMin);
  return std::max<int64_t>(batch, std::min(wanted, int64_t{batch} * seq_len));
}

void lay_out(TransformerPlan& plan, int32_t threads) {
  MUSTER_CHECK(plan.batch >= 1 && plan.seq_len >= 1 && threads >= 1)
      << "batch " << plan.batch << ", sequence " << plan.seq_len << ", threads " << threads;
  plan.params = model_params(plan.model);
  plan.head_rows = head_rows(plan.model, plan.batch, plan.seq_len);
  Planner planner(plan);
  planner.blocks();
  planner.layers();
  planner.rest();
  planner.workspace(threads);
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
                                 RematPolicy remat, bool training, int32_t threads) {
  TransformerPlan plan;
  plan.model = model;
  plan.batch = batch;
  plan.seq_len = seq_len;
  plan.remat = remat;
  plan.training = training;
  lay_out(plan, threads);
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
  lay_out(plan, threads);
  return plan;
}

}  // namespace muster::trainer
