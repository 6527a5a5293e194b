// The buffers of one rank's step of a transformer, planned before anything is allocated: what layers keep from forward to backward,
// what they share, what is exchanged. Pure arithmetic. Letters are transformer.h's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/model/block_memory.h"
#include "trainer_core/model/expert_memory.h"
#include "trainer_core/model/param_spec.h"
#include "trainer_core/model/scaling_state.h"
#include "trainer_core/model/token_layout.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// A tensor of a layer whose place between forward and backward is the host's memory.
struct OffloadedTensor {
  BufferId device;  // where operations write and read it: all layers share it
  BufferId host;    // this layer's own, of kOffloaded
  int64_t elements = 0;
  DType dtype = DType::kF32;
  bool is_attentions = true;  // else the MLP's, which lies where attention's exchange does its work
};

// Where one layer's tensors are while it runs. What the layer keeps on the device (LayerKeeps) has a
// buffer of its own, and all else shares one with the other layers: what is recomputed, and what is
// fetched from the host's memory.
struct LayerBuffers {
  BufferId input;    // (T', d) the residual stream at the layer's entrance
  BufferId stats1;   // NormShape::stats(T')
  BufferId normed1;  // (T', d)
  BufferId qkv;      // (T, (H + 2K) h) after RoPE, as ModelExchange::to_heads has left it
  BufferId context;  // (T, H h) attention's output
  BufferId lse;      // (B, H, S), of the heads and positions of attended_shape()
  // (T', d) the residual stream after attention; in a parallel block's backward pass the MLP's gradient of normed1
  BufferId middle;
  BufferId stats2;   // NormShape::stats(T')
  BufferId normed2;  // (T', d) what the MLP reads: in a parallel block normed1
  // Of an MLP; of experts R' rows in place of T, and the experts' m.
  BufferId gate_up;  // (T, 2m), without a gate (T, m); its gradient during backward
  BufferId act;      // (T, m); its gradient during backward

  // Of a layer with experts: see Routing. Every layer has its own offsets and balance, from which the step's sums are made. T*
  // are the tokens of whole sequences: more than T where ranks have parts of them.
  BufferId router_probs;        // (T*, E)
  BufferId chosen_experts;      // (T*, k)
  BufferId gates;               // (T*, k)
  BufferId slots;               // (T*, k)
  BufferId density;             // (G, E)
  BufferId expert_offsets;      // (E + 1)
  BufferId balance;             // (G)
  BufferId own_expert_offsets;  // (E/X + 1) ExpertTraffic's: on one rank those of all experts

  // Copied out when the layer's forward pass is done and back in before its backward pass. The model's last
  // layer has no need of it: its backward pass comes next, and finds the shared buffers as they were.
  std::vector<OffloadedTensor> offloaded;
};

// Consecutive layers of one micro-batch, which a rank computes at a time: all of them, or those of a chunk of its pipeline stage.
struct LayerRun {
  size_t first = 0;
  size_t end = 0;   // behind the last
  size_t slot = 0;  // where their activations are
};

// Of a pipeline stage: the stream (T', d) at the entrance or the exit of its layers, or its gradient, on its way between two stages.
// The computation copies what has come to where it reads it, and what goes is made or copied here.
struct StageBuffers {
  BufferId received;
  BufferId sent;
  BufferId received_gradient;
  BufferId sent_gradient;
};

// Of one layer of a decoding plan: (B, K, capacity, h) each.
struct CacheBuffers {
  BufferId keys;
  BufferId values;
};

// Of a quantized model: one product's operands on their grid, in turn. int8's scales are of rows or columns, fp8's current ones of
// tensors, and delayed ones the state's.
struct QuantizedBuffers {
  BufferId input;            // (T, the widest input)
  BufferId output_gradient;  // (T, the widest output) training
  BufferId kernel;  // (out, in) of the largest kernel, or in fp32 the product that is its gradient
  BufferId left_scale;   // of what lies left in a product
  BufferId right_scale;  // and right
  BufferId amax;         // (scaling_scales) training, of delayed scaling: this step's so far
};

// Where one KV head is that of several ranks, which hold its parameters together, queries and keys are stored apart: a layer's are
// stacked here when they are used, and their gradients made here.
struct StackedBuffers {
  BufferId qkv;         // ((H + 2K) h, d) of the activations' type
  BufferId qkv_bias;    // ((H + 2K) h)
  BufferId d_qkv;       // training, fp32
  BufferId d_qkv_bias;  // training
};

// Where ranks have positions of the same sequences. During attention a rank has all positions that a context rank has, of its share of
// the heads: Q T rows.
struct AttentionBuffers {
  BufferId starts;                           // (Q T), of packed sequences
  BufferId staging;                          // twice the largest that is exchanged for heads
  std::array<BufferId, 2> ring_blocks = {};  // RingSizes says what of
  BufferId ring_sums;
  BufferId ring_gradients;  // training
};

// (out, in) of a product's kernel.
struct DenseShape {
  int64_t out = 0;
  int64_t in = 0;
};

// The buffers of one rank's step, by id in `memory`. Flat blocks hold the rank's shards: on one rank they follow the ParamSpec
// table.
//
// Offloaded buffers lie behind all others. On the CPU both are one memory: offloading there runs the
// same copies, and saves nothing. A GPU has [0, device_bytes) on the device and the rest in page-locked
// memory of the host (Arena), and copies in the order of its operations. On a stream of their own the
// copies of `offloaded` could go out as soon as the tensor is written, and in while the layer above is
// in its backward pass, once that is through with the shared buffer (qkv and context after its
// attention_backward, gate_up and middle after its MLP).
struct TransformerPlan {
  ModelConfig model;
  int32_t batch = 0;    // B
  int32_t seq_len = 0;  // of whole sequences; S of them are this rank's positions
  // Of activations and their gradients: what has T rows below but stats, lse, and the head's tensors.
  DType dtype = DType::kF32;
  LayerKeeps keeps;
  bool training = true;  // false: no gradients or saved activations
  bool packed = false;   // documents follow each other in a sequence (Batch::starts)
  // Positions that a decoding plan keeps keys and values of; S is then the most tokens that arrive at a time. 0: another plan.
  int32_t cache_capacity = 0;

  std::vector<ParamSpec> params;  // the whole model's
  Sharding sharding;              // what of them the rank stores
  BlockMemory blocks;             // where they are read, and their gradients made
  MemoryPlan memory;
  size_t device_bytes = 0;  // of `memory`, those before the offloaded buffers
  // The shards as rounds_params() says, and behind flat ones the scaling state.
  BufferId param_block;
  BufferId loading_block;  // what is loaded: parameters and scaling state, flat fp32
  // Of a training plan only:
  BufferId grad_block;       // of the shards
  BufferId optimizer_state;  // as many numbers as the plan was asked for

  // Of each slot in turn, those of a run's layers: of a rank that has all layers, by layer. See buffers_of().
  std::vector<LayerBuffers> layers;
  std::vector<CacheBuffers> caches;  // of a decoding plan, by layer
  BufferId output;                   // (T', d) the residual stream after the last layer
  BufferId final_stats;              // NormShape::stats(T')
  BufferId final_normed;             // (T', d)
  BufferId rope_cos;                 // (positions(), h/2), with RoPE
  BufferId rope_sin;                 // (positions(), h/2), with RoPE
  BufferId tokens;                   // (T)
  BufferId targets;                  // (T)
  BufferId starts;                   // (T), of packed sequences
  BufferId weights;                  // (T)
  BufferId losses;                   // (T)
  BufferId logits;                   // (head_rows, V)
  BufferId
      delta;  // (T', d) what a sublayer adds to the stream; a norm's input gradient in backward
  BufferId d_stream;   // (T', d) training: gradient of the residual stream
  BufferId d_context;  // (T, H h) training
  BufferId d_qkv;      // (T, (H + 2K) h) training
  // Of a model with experts (expert_memory.h):
  // (R, d) what experts read of this rank's tokens, and what they give them
  BufferId expert_rows;
  // (R', d) what this rank's experts read, and what they give: on one rank expert_rows
  BufferId own_expert_rows;
  BufferId d_expert_act;  // (R', m) training
  BufferId d_gates;       // (T, k) training
  ExpertExchangeBuffers expert_exchange;
  QuantizedBuffers quantized;
  // Of ranks that split rows:
  BufferId all_rows;    // (T, d) what is gathered of all ranks' rows, or will be their sum
  BufferId logit_sums;  // vocabulary_sums() of the head's rows
  StackedBuffers stacked;
  AttentionBuffers attention;
  // Of a model with experts; without other ranks' tokens the former is `weights`, and the latter is not there.
  BufferId routed_weights;  // (T*) of targets
  BufferId routed_order;    // (T*) Routing::order
  StageBuffers stage;
  BufferId workspace;
  int64_t workspace_elements = 0;
  // Rows that the head and the loss handle at a time: the logits of all T rows are never kept.
  int64_t head_rows = 0;

  // Decoding in bf16: matrices are kept rounded (RoundedParams), half the bytes to read for every token. Quantized products
  // round what training rounds: the masters.
  bool rounds_params() const {
    return cache_capacity > 0 && dtype == DType::kBf16 && !model.quantization.enabled();
  }
  // What is loaded.
  std::vector<TensorRow> rows() const { return model_rows(params, model); }
  int64_t stored_parameters() const { return sharding.layout.elements(); }
  // This rank's part of the computation.
  const RankPart& part() const { return sharding.part; }
  const PipelinePart& pipeline() const { return part().pipeline; }
  // Layers of a run.
  size_t run_length() const {
    return static_cast<size_t>(model.num_layers / (pipeline().stage.ranks * pipeline().chunks));
  }
  LayerRun run(int32_t chunk = 0, int32_t slot = 0) const;
  bool begins_model(const LayerRun& run) const { return run.first == 0; }
  bool ends_model(const LayerRun& run) const { return is_last(run.end - 1); }
  bool is_last(size_t layer) const { return layer + 1 == static_cast<size_t>(model.num_layers); }
  // Of a run's layer: its place in `layers`.
  size_t place_of(const LayerRun& run, size_t layer) const {
    return run.slot * run_length() + layer - run.first;
  }
  const LayerBuffers& buffers_of(const LayerRun& run, size_t layer) const {
    return layers[place_of(run, layer)];
  }
  // Blocks of the layout: those that this rank has.
  size_t embedding_block() const { return 0; }
  size_t layer_block(size_t layer) const;
  size_t end_block() const { return sharding.layout.blocks().size() - 1; }
  // What the first thing is that a pass over the run reads. Backward of the last run: what its forward pass has left.
  size_t first_block_forward(const LayerRun& run) const {
    return begins_model(run) ? embedding_block() : layer_block(run.first);
  }
  std::optional<size_t> first_block_backward(const LayerRun& run) const {
    if (ends_model(run)) return std::nullopt;
    return layer_block(run.end - 1);
  }
  size_t head_block() const { return model.logits_via_embedding ? embedding_block() : end_block(); }
  // Of a sequence: S of them.
  Positions own_positions() const;
  int64_t token_count() const {  // T
    return int64_t{batch} * seq_len / part().sequence_sharers();
  }
  int64_t own_rows() const { return token_count() / part().tensor.ranks; }    // T'
  int64_t first_own_row() const { return own_rows() * part().tensor.index; }  // of the T
  Share mlp_columns() const { return share_of(model.mlp_dim, part().tensor); }
  DenseShape dense_shape(DenseProduct product) const;  // of this rank's share
  Share expert_columns() const { return share_of(model.experts.mlp_dim, part().tensor); }
  Share own_experts() const { return share_of(model.experts.count, part().expert); }
  // Of a layer with experts, and all tokens that a call may have.
  RoutingShape routing_shape() const;
  int64_t expert_rows_count() const {  // R
    const RoutingShape shape = routing_shape();
    return shape.own_tokens() * shape.per_token;
  }
  int64_t own_expert_rows_max() const {  // R'
    return received_rows_max(routing_shape(), part().expert.ranks);
  }
  Share vocabulary() const { return share_of(model.vocab_size, part().tensor); }
  int64_t routed_tokens() const { return token_count() * part().sequence_sharers(); }  // T*
  int64_t first_routed() const { return token_count() * part().among_sharers(); }      // of them
  bool stacks_qkv() const { return model.num_kv_heads % part().tensor.ranks != 0; }
  int32_t positions() const { return cache_capacity > 0 ? cache_capacity : seq_len; }
  AttentionShape attention_shape() const;
  // Of the heads and positions that a rank has during attention: the same where it has all of both.
  AttentionShape attended_shape() const;
  NormShape norm_shape() const {
    return {model.norm_type, model.norm_epsilon, model.norm_gain_offset};
  }
  MlpActivation activation() const { return {model.activation, model.gated_mlp}; }
  MlpActivation expert_activation() const {
    return {model.experts.activation, model.experts.gated};
  }
  LossShape loss_shape() const { return {model.final_logits_soft_cap, model.z_loss_multiplier}; }
};

// Lays out the buffers of a step. Allocates nothing. `threads` is the CPU backend's. `keeps` and
// `optimizer_state`, in fp32 numbers, are training's: without a backward pass nothing is kept.
// `dtype` is the activations'. `packed`: batches have starts. `sharding` is of the same model and dtype; none: the rank stores all.
TransformerPlan plan_transformer(const ModelConfig& model, int32_t batch, int32_t seq_len,
                                 DType dtype, const LayerKeeps& keeps, bool training,
                                 int32_t threads, int64_t optimizer_state = 0, bool packed = false,
                                 const std::optional<Sharding>& sharding = std::nullopt);

// The same for decoding, with a cache of `capacity` positions, to which at most `chunk` are added at a time. With bf16 the
// matrices and the cache are bf16, too. Everything else lies on what loading needs beside the rounded block, so parameters
// come before the Transformer: into loading_params(), then settle_params().
TransformerPlan plan_decoder(const ModelConfig& model, int32_t batch, int32_t chunk,
                             int32_t capacity, int32_t threads, DType dtype = DType::kF32);

// The flat fp32 block of a plan: what its rows() say.
std::span<float> loading_params(const TransformerPlan& plan, Arena& arena);
// Brings what was loaded into the form that the Transformer reads. Once.
void settle_params(const TransformerPlan& plan, Arena& arena);

}  // namespace muster::trainer
