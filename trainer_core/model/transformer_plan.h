// The buffers of one rank's step of a transformer, planned before anything is allocated: the
// tensors that layers keep from forward to backward, the buffers that they share, and the
// exchanges. Pure arithmetic. transformer.h defines the dimensions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/model/block_memory.h"
#include "trainer_core/model/param_spec.h"
#include "trainer_core/model/scaling_state.h"
#include "trainer_core/model/token_layout.h"
#include "trainer_core/ops/expert_ops.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// A tensor of a layer that is kept in the host's memory between forward and backward.
struct OffloadedTensor {
  BufferId device;  // where operations write and read it; shared by all layers
  BufferId host;    // this layer's copy, of category kOffloaded
  int64_t elements = 0;
  DType dtype = DType::kF32;
  // True: a tensor of attention; false: of the MLP. The latter are fetched separately, because the
  // exchange of attention also uses the MLP's buffers.
  bool is_attentions = true;
};

// The tensors of a layer while it runs. Those that the layer keeps on the device (LayerPlacements)
// have a buffer of their own; those that are recomputed, or fetched from the host, share one with
// the other layers.
struct LayerBuffers {
  BufferId input;    // (T', d) the residual stream at the layer's entrance
  BufferId stats1;   // NormShape::stats(T')
  BufferId normed1;  // (T', d)
  BufferId qkv;      // (T, (H + 2K) h) after RoPE, as ModelExchange::to_heads has left it
  BufferId context;  // (T, H h) attention's output
  BufferId lse;      // (B, H, S), for the heads and positions of attended_shape()
  // (T', d) the residual stream after attention. In a parallel block's backward pass, the MLP's
  // gradient of normed1.
  BufferId middle;
  BufferId stats2;   // NormShape::stats(T')
  BufferId normed2;  // (T', d) what the MLP reads: in a parallel block normed1
  // The MLP. For experts, with R' rows instead of T, and the experts' m.
  BufferId gate_up;  // (T, 2m), without a gate (T, m); its gradient during backward
  BufferId act;      // (T, m); its gradient during backward

  // A layer with experts: see Routing. Every layer has its own offsets and balance, from which
  // the step's sums are computed. T* are the tokens of whole sequences: more than T if ranks split
  // them.
  BufferId router_probs;    // (T*, E)
  BufferId chosen_experts;  // (T*, k)
  BufferId gates;           // (T*, k)
  BufferId slots;           // (T*, k)
  BufferId density;         // (G, E)
  BufferId expert_offsets;  // (E + 1)
  BufferId balance;         // (G)
  // (E/X + 1) ExpertTraffic::own_offsets; on one rank expert_offsets.
  BufferId own_expert_offsets;

  // Copied to the host after the layer's forward pass, and back before its backward pass. The
  // model's last layer needs no copy: its backward pass comes next, while the shared buffers still
  // hold its tensors.
  std::vector<OffloadedTensor> offloaded;
};

// Consecutive layers that a rank computes together for one micro-batch: all layers, or those of a
// chunk of its pipeline stage.
struct LayerRun {
  size_t first = 0;
  size_t end = 0;   // one past the last
  size_t slot = 0;  // of their activations
};

// The messages of a pipeline stage: the stream (T', d) at the entrance or the exit of its layers,
// or its gradient. Received messages are copied to the buffer that reads them; sent ones are
// computed or copied here.
struct StageBuffers {
  BufferId received;
  BufferId sent;
  BufferId received_gradient;
  BufferId sent_gradient;
};

// The cache of one layer of a decoding plan: (B, K, capacity, h) each.
struct CacheBuffers {
  BufferId keys;
  BufferId values;
};

// Rounded operands of a quantized model, for one GEMM at a time. int8 has scales per row or column,
// fp8 with current scaling per tensor; delayed scales are in the scaling state.
struct QuantizedBuffers {
  BufferId input;            // (T, the widest input)
  BufferId output_gradient;  // (T, the widest output) training
  // (out, in) of the largest kernel: the rounded kernel, or in fp32 its gradient, which is the
  // result of the GEMM.
  BufferId kernel;
  BufferId left_scale;   // of the left operand
  BufferId right_scale;  // of the right operand
  // (scaling_scales) training with delayed scaling: the largest absolute values of this step so far
  BufferId amax;
};

// If several ranks share one KV head, and so its parameters, queries and keys are stored
// separately. A layer's are stacked here for use, and their gradients computed here.
struct StackedBuffers {
  BufferId qkv;         // ((H + 2K) h, d) of the activations' type
  BufferId qkv_bias;    // ((H + 2K) h)
  BufferId d_qkv;       // training, fp32
  BufferId d_qkv_bias;  // training
};

// Buffers if several ranks split the positions of a sequence. During attention a rank has all
// positions of its context rank for its share of the heads: Q T rows with Q ranks along `sequence`.
struct AttentionBuffers {
  BufferId starts;                           // (Q T), of packed sequences
  BufferId staging;                          // twice the largest tensor that to_heads exchanges
  std::array<BufferId, 2> ring_blocks = {};  // sizes: RingSizes
  BufferId ring_sums;
  BufferId ring_gradients;  // training
};

// The exchange buffers of X ranks that split the experts. Rows are those of one layer at a time.
struct ExpertExchangeBuffers {
  BufferId staging;        // (R', d) rows by rank, before or after they are ordered by expert
  BufferId rows_in_order;  // (R') int32: 0, 1, …
  BufferId gate_rows;      // (R) training: gates, later their gradients, by expert
  BufferId gates;          // (R') training: of the own experts' rows
  BufferId d_gates;        // (R') training
};

// Returns the largest number of rows that a rank can receive if `ranks` ranks split the experts.
// `shape` is a rank's routing; all ranks have similar ones.
int64_t received_rows_max(const RoutingShape& shape, int ranks);

// The (out, in) of a GEMM's kernel.
struct DenseShape {
  int64_t out = 0;
  int64_t in = 0;
};

// The buffers of one rank's step, by id in `memory`. Flat blocks hold the rank's shards: on one
// rank they follow the ParamSpec table.
//
// Offloaded buffers follow all others. On the CPU both are one memory: offloading runs the same
// copies and saves nothing. A GPU has [0, device_bytes) on the device and the rest in page-locked
// host memory (Arena), and copies in the order of its operations. On a stream of their own, the
// copies of `offloaded` could start as soon as the tensor is written. Copies back could run during
// the backward pass of the layer above, once it no longer uses the shared buffer (qkv and context
// after its attention_backward, gate_up and middle after its MLP).
struct TransformerPlan {
  ModelConfig model;
  int32_t batch = 0;    // B
  int32_t seq_len = 0;  // of whole sequences; S of them are this rank's positions
  // The type of activations and their gradients: all tensors of T rows below except stats, lse and
  // the head's.
  DType dtype = DType::kF32;
  LayerPlacements placements;
  bool training = true;  // false: no gradients or saved activations
  bool packed = false;   // several documents per sequence (Batch::starts)
  // For a decoding plan, the positions whose keys and values are cached; S is then the maximum of
  // tokens per call. 0: not a decoding plan.
  int32_t cache_capacity = 0;

  std::vector<ParamSpec> params;  // the whole model's
  Sharding sharding;              // the rank's part of them
  BlockMemory blocks;             // where weights are read, and gradients written
  MemoryPlan memory;
  size_t device_bytes = 0;  // of `memory`, without the offloaded buffers
  // The shards, rounded if rounds_params(). If they are flat, the scaling state follows them.
  BufferId param_block;
  BufferId loading_block;  // loaded values, flat fp32: parameters and scaling state
  // In a training plan only:
  BufferId grad_block;       // of the shards
  BufferId optimizer_state;  // as many elements as requested

  // For each slot in turn, the layers of a run; without a pipeline, by layer. See buffers_of().
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
  // (T', d) a sublayer's addition to the stream; in backward a norm's input gradient.
  BufferId delta;
  BufferId d_stream;   // (T', d) training: gradient of the residual stream
  BufferId d_context;  // (T, H h) training
  BufferId d_qkv;      // (T, (H + 2K) h) training
  // For a model with experts (expert_memory.h):
  // (R, d) the rows of this rank's tokens, as input and as output of the experts.
  BufferId expert_rows;
  // (R', d) the input and output rows of this rank's experts; on one rank expert_rows.
  BufferId own_expert_rows;
  BufferId d_expert_act;  // (R', m) training
  BufferId d_gates;       // (T, k) training
  ExpertExchangeBuffers expert_exchange;
  QuantizedBuffers quantized;
  // If ranks split rows:
  BufferId all_rows;    // (T, d) the gathered rows of all ranks, or the input of a reduce-scatter
  BufferId logit_sums;  // vocabulary_sums() of the head's rows
  StackedBuffers stacked;
  AttentionBuffers attention;
  // For a model with experts. If the rank has complete sequences (T* = T), routed_weights is
  // `weights`, and routed_order does not exist.
  BufferId routed_weights;  // (T*) of targets
  BufferId routed_order;    // (T*) Routing::order
  StageBuffers stage;
  BufferId workspace;
  int64_t workspace_elements = 0;
  // Rows that the head and the loss process at a time: the logits of all T rows are never stored.
  int64_t head_rows = 0;

  // Whether matrices are stored rounded (RoundedParams): when decoding in bf16, which halves the
  // bytes read per token. Quantized GEMMs round the fp32 masters, as in training.
  bool rounds_params() const {
    return cache_capacity > 0 && dtype == DType::kBf16 && !model.quantization.enabled();
  }
  // The rows that are loaded.
  std::vector<TensorRow> rows() const { return model_rows(params, model); }
  int64_t stored_parameters() const { return sharding.layout.elements(); }
  // The size of the shards' block in elements of fp32's size, where the scaling state begins.
  int64_t stored_floats() const { return sharding.layout.stored_floats(); }
  // This rank's part of the computation.
  const RankPart& part() const { return sharding.part; }
  const PipelinePart& pipeline() const { return part().pipeline; }
  // The number of layers of a run.
  size_t run_length() const {
    return static_cast<size_t>(model.num_layers / (pipeline().stage.ranks * pipeline().chunks));
  }
  LayerRun run(int32_t chunk = 0, int32_t slot = 0) const;
  bool begins_model(const LayerRun& run) const { return run.first == 0; }
  bool ends_model(const LayerRun& run) const { return is_last(run.end - 1); }
  bool is_last(size_t layer) const { return layer + 1 == static_cast<size_t>(model.num_layers); }
  // The index in `layers` of a run's layer.
  size_t index_of(const LayerRun& run, size_t layer) const {
    return run.slot * run_length() + layer - run.first;
  }
  const LayerBuffers& buffers_of(const LayerRun& run, size_t layer) const {
    return layers[index_of(run, layer)];
  }
  // Indices of the rank's blocks in the layout.
  size_t embedding_block() const { return 0; }
  size_t layer_block(size_t layer) const;
  size_t end_block() const { return sharding.layout.blocks().size() - 1; }
  // The first block that a pass over the run reads; nullopt for the last run's backward pass, which
  // finds the blocks of its forward pass.
  size_t first_block_forward(const LayerRun& run) const {
    return begins_model(run) ? embedding_block() : layer_block(run.first);
  }
  std::optional<size_t> first_block_backward(const LayerRun& run) const {
    if (ends_model(run)) return std::nullopt;
    return layer_block(run.end - 1);
  }
  size_t head_block() const { return model.logits_via_embedding ? embedding_block() : end_block(); }
  // The S positions of each sequence.
  Positions own_positions() const;
  int64_t token_count() const {  // T
    return int64_t{batch} * seq_len / part().sequence_sharers();
  }
  int64_t own_rows() const { return token_count() / part().tensor.ranks; }    // T'
  int64_t first_own_row() const { return own_rows() * part().tensor.index; }  // in [0, T)
  Share mlp_columns() const { return share_of(model.mlp_dim, part().tensor); }
  DenseShape dense_shape(DenseProduct product) const;  // of this rank's share
  Share expert_columns() const { return share_of(model.experts.mlp_dim, part().tensor); }
  Share own_experts() const { return share_of(model.experts.count, part().expert); }
  // The routing of a layer with experts, for the maximum of tokens per call.
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
  int64_t first_routed() const { return token_count() * part().among_sharers(); }      // < T*
  bool stacks_qkv() const { return model.num_kv_heads % part().tensor.ranks != 0; }
  int32_t positions() const { return cache_capacity > 0 ? cache_capacity : seq_len; }
  AttentionShape attention_shape() const;
  // For the heads and positions that a rank has during attention: attention_shape() unless ranks
  // exchange them.
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

// The flat fp32 block of a plan, for the values of rows().
std::span<float> loading_params(const TransformerPlan& plan, Arena& arena);
// Converts the loaded values to the form that the Transformer reads. Called once.
void settle_params(const TransformerPlan& plan, Arena& arena);

}  // namespace muster::trainer
