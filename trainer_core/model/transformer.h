// The Llama-2 forward and backward passes, by hand, over a static memory plan.
//
// Dimensions: B sequences per step, S tokens each, d = emb_dim, H query heads, K key/value heads,
// h = head_dim, m = mlp_dim, L layers, V vocabulary.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/base/tensor.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/model/param_spec.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// Elements appended to the gradient block for what a step reduces beside gradients (loss, weight,
// stop votes): one collective carries everything.
constexpr int64_t kGradTailElements = 16;

// What one layer keeps from its forward pass for its backward pass. Under remat `full` every layer
// has its own `input` and shares the rest, which backward recomputes from it.
struct LayerBuffers {
  BufferId input = 0;    // (T, d) the residual stream at the layer's entrance
  BufferId rstd1 = 0;    // (T)
  BufferId normed1 = 0;  // (T, d)
  BufferId qkv = 0;      // (T, (H + 2K) h) after RoPE
  BufferId context = 0;  // (T, H h) attention's output
  BufferId lse = 0;      // (B, H, S)
  BufferId middle = 0;   // (T, d) the residual stream after attention
  BufferId rstd2 = 0;    // (T)
  BufferId normed2 = 0;  // (T, d)
  BufferId gate_up = 0;  // (T, 2m); its gradient during backward
  BufferId act = 0;      // (T, m); its gradient during backward
};

// The buffers of one rank's step, by id in `memory`. Flat blocks follow the ParamSpec table.
struct TransformerPlan {
  ModelConfig model;
  int32_t batch = 0;    // B
  int32_t seq_len = 0;  // S
  RematPolicy remat = RematPolicy::kNone;
  bool training = true;  // false: no gradients, optimizer state or saved activations

  std::vector<ParamSpec> params;
  MemoryPlan memory;
  BufferId param_block = 0;
  // Of a training plan only:
  BufferId grad_block = 0;  // parameter_count + kGradTailElements
  BufferId adam_m = 0;
  BufferId adam_v = 0;

  std::vector<LayerBuffers> layers;
  BufferId output = 0;        // (T, d) the residual stream after the last layer
  BufferId final_rstd = 0;    // (T)
  BufferId final_normed = 0;  // (T, d)
  BufferId rope_cos = 0;      // (S, h/2)
  BufferId rope_sin = 0;      // (S, h/2)
  BufferId tokens = 0;        // (T)
  BufferId targets = 0;       // (T)
  BufferId weights = 0;       // (T)
  BufferId losses = 0;        // (T)
  BufferId logits = 0;        // (head_rows, V)
  BufferId delta =
      0;  // (T, d) what a sublayer adds to the stream; a norm's input gradient in backward
  BufferId d_stream = 0;   // (T, d) training: gradient of the residual stream
  BufferId d_context = 0;  // (T, H h) training
  BufferId d_qkv = 0;      // (T, (H + 2K) h) training
  BufferId workspace = 0;
  int64_t workspace_elements = 0;
  // Rows that the head and the loss handle at a time: the logits of all T rows are never kept.
  int64_t head_rows = 0;

  AttentionShape attention_shape() const;
};

// Lays out the buffers of a step. Allocates nothing. `threads` is the CPU backend's.
TransformerPlan plan_transformer(const ModelConfig& model, int32_t batch, int32_t seq_len,
                                 RematPolicy remat, bool training, int32_t threads);

// tokens, targets: (B, S) ids below V. weights: (B, S), 1 where the target counts and 0 where it
// does not.
struct Batch {
  std::span<const int32_t> tokens;
  std::span<const int32_t> targets;
  std::span<const float> weights;
};

struct LossSum {
  double loss = 0;    // sum over targets of weight * cross-entropy, nats
  double weight = 0;  // sum of weights
};

// Not thread-safe; its ops may use several threads inside. Allocates nothing after its
// construction. Token ids must lie in [0, V): the data loader judges them.
class Transformer {
 public:
  // `plan`, `arena` and `ops` outlive the model. The arena was made from plan.memory.
  Transformer(const TransformerPlan& plan, Arena& arena, Ops& ops);

  // Loss of the batch without gradients.
  LossSum forward(const Batch& batch);
  // Loss, and d(sum of weighted cross-entropy)/d(parameter) written (not added) into the gradient
  // block. Not divided by anything: the caller scales by 1/total weight once it is known across
  // ranks. Training plans.
  LossSum forward_backward(const Batch& batch);
  // Logits of position `position` of every sequence, out (B, V), for `tokens` (B, S). Later
  // positions may hold any ids.
  void logits(std::span<const int32_t> tokens, int32_t position, float* out);

  std::span<float> params();
  std::span<float> grads();       // without the tail
  std::span<float> grad_block();  // with it

 private:
  struct LayerParams;

  Tensor view(BufferId id, std::initializer_list<int64_t> dims) const;
  // Parameter `index` of the table in `block`, with `stacked - 1` neighbours below it as one
  // matrix.
  Tensor param(float* block, size_t index, int stacked = 1) const;
  LayerParams layer_params(float* block, int layer) const;
  Tensor final_gain(float* block) const;
  Tensor head(float* block) const;
  Workspace workspace() const;

  void upload(const Batch& batch);
  void forward_layers();
  void forward_attention(int layer);
  void forward_mlp(int layer);
  void recompute_layer(int layer);
  LossSum head_loss(bool backward);
  void backward_layers();
  void backward_attention(int layer);
  void backward_mlp(int layer);

  const TransformerPlan& plan_;
  Arena& arena_;
  Ops& ops_;
  AttentionShape shape_;
  int64_t rows_;  // T
  int64_t parameters_;
  float* param_block_;
  float* grad_block_ = nullptr;
};

}  // namespace muster::trainer
