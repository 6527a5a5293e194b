// The buffers of a step of a transformer on one rank, planned before anything is allocated: the
// tensors that layers save for the backward pass, the buffers that layers share, and the buffers of
// exchanges. Pure arithmetic. transformer.h defines the dimensions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/base/tensor_box.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/model/block_memory.h"
#include "trainer_core/model/layer_buffers.h"
#include "trainer_core/model/param_spec.h"
#include "trainer_core/model/scaling_state.h"
#include "trainer_core/model/served_adapter.h"
#include "trainer_core/model/token_layout.h"
#include "trainer_core/ops/expert_ops.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// Consecutive layers that a rank computes together for one micro-batch: all layers, or those of a
// chunk of its pipeline stage.
struct LayerRun {
  size_t first = 0;
  size_t end = 0;   // one past the last layer
  size_t slot = 0;  // slot of the activations (stage_plan.h)
};

// The buffers of a pipeline stage's messages. A message is the residual stream (T', d) at the
// entrance or the exit of a run, or its gradient. A received message is copied to the buffer from
// which layers read it; a message to be sent is computed in its buffer or copied to it.
struct StageBuffers {
  BufferId received;
  BufferId sent;
  BufferId received_gradient;
  BufferId sent_gradient;
};

// The size of the key/value cache of a decoding plan. Sequences share its blocks; each block has
// kBlockPositions consecutive positions of one sequence.
struct CacheSize {
  // A compromise: half a block per sequence is unused on average, and a block's keys of one head
  // are read at once.
  static constexpr int32_t kBlockPositions = 16;

  int32_t capacity = 0;   // maximum positions of a sequence; 0: no cache
  int32_t sequences = 0;  // maximum sequences of a call: N
  int32_t blocks = 0;     // blocks of the cache
  bool is_int8 = false;   // elements are int8 with a scale per head and position

  // Returns the number of blocks of `positions` positions.
  static constexpr int32_t blocks_of(int32_t positions) {
    return (positions + kBlockPositions - 1) / kBlockPositions;
  }
  int32_t blocks_per_sequence() const { return blocks_of(capacity); }  // M
};

// The cache of one layer of a decoding plan.
struct CacheBuffers {
  BufferId keys;        // (blocks, K, kBlockPositions, h)
  BufferId values;      // the same
  BufferId key_scales;  // (blocks, K, kBlockPositions) int8 only
  BufferId value_scales;
};

// The buffers of a decoding call of R rows. They describe the rows (PagedRows).
struct PagedBuffers {
  BufferId sequences;  // (R)
  BufferId positions;  // (R)
  BufferId blocks;     // (N, M)
  BufferId rope_cos;   // (R, h/2) the rows' part of the RoPE table, with RoPE
  BufferId rope_sin;   // (R, h/2)
  BufferId learned;    // (R, d) the rows' part of the table of positions, if the model learns them
  BufferId logits_rows;  // (R) the rows whose logits are computed
};

// The rounded operands of one quantized GEMM at a time. int8 has a scale per row or column, and fp8
// with current scaling a scale per tensor; the scales of delayed scaling are in the scaling state.
struct QuantizedBuffers {
  BufferId input;            // (T, maximum input width)
  BufferId output_gradient;  // (T, maximum output width) training
  // (out, in) of the largest kernel: the rounded kernel or, in fp32, the kernel's gradient as the
  // GEMM has computed it.
  BufferId kernel;
  BufferId left_scale;   // scale of the left operand
  BufferId right_scale;  // scale of the right operand
  // (scaling_scales()) training with delayed scaling: the largest magnitudes of this step so far
  BufferId amax;
};

// If several ranks share a KV head and its parameters, the projection of queries is stored apart
// from those of keys and values. These buffers hold the projections of one layer at a time as one
// stacked matrix, and the gradients of the stacked matrix.
struct StackedBuffers {
  BufferId qkv;         // ((H + 2K) h, d) of the activation type
  BufferId qkv_bias;    // ((H + 2K) h)
  BufferId d_qkv;       // training, fp32
  BufferId d_qkv_bias;  // training
};

// The buffers of attention if several ranks split the positions of a sequence. During attention,
// each of Q ranks along the sequence axis has the positions of all Q ranks for its share of the
// heads: Q T rows.
struct AttentionBuffers {
  BufferId starts;  // (Q T) packed sequences only
  // Twice the size of the largest tensor that to_heads() exchanges.
  BufferId staging;
  std::array<BufferId, 2> ring_blocks = {};  // RingSizes has the sizes
  BufferId ring_sums;
  BufferId ring_gradients;  // training
};

// The exchange buffers if X ranks split the experts. They are used by one layer at a time.
struct ExpertExchangeBuffers {
  // (R', d) received rows ordered by source rank, before they are ordered by expert, or rows to be
  // sent back.
  BufferId staging;
  BufferId rows_in_order;  // (R') int32: 0, 1, …
  BufferId gate_rows;      // (R) training: gates, later their gradients, ordered by expert
  BufferId gates;          // (R') training: gates of the rows of own experts
  BufferId d_gates;        // (R') training
};

// The buffers of the adapters of one GEMM at a time (transformer_adapters.cc). R = n rank for the n
// adapted projections of the GEMM; each buffer is as large as its largest use. C = chunk_rows rows
// are computed at a time.
constexpr int64_t kAdapterRows = 1024;  // the maximum of C: enough rows for efficient GEMMs
struct AdapterBuffers {
  int64_t chunk_rows = 0;
  BufferId low;    // (C, R) the inputs times A, scaled
  BufferId wide;   // (C, in or out) dropped inputs, or what is added to a bf16 output
  BufferId b;      // (out, R) fp32: the matrices B as one block-diagonal matrix
  BufferId d_low;  // (T, R) training
  BufferId d_b;    // (out, R) training, fp32: gradient of the block-diagonal matrix
};

// Returns the maximum number of rows that a rank can receive if `ranks` ranks split the experts.
// `shape` is the routing of one rank; that of the other ranks has the same sizes.
int64_t received_rows_max(const RoutingShape& shape, int ranks);

// The shape (out, in) of the kernel of a GEMM.
struct DenseShape {
  int64_t out = 0;
  int64_t in = 0;
};

// The buffers of a step on one rank, as ids in `memory`. Flat blocks contain the rank's shards; on
// a single rank they have the order of the ParamSpec table.
//
// Offloaded buffers follow all others. With a GPU, the bytes [0, device_bytes) are on the device
// and the rest is page-locked host memory (Arena). With the CPU backend, both are host memory:
// offloading makes the same copies, but saves no memory. Copies run in the order of the other
// operations. (A separate stream would allow more overlap. A copy to the host could start once its
// tensor is written. A copy back could run during the backward pass of the next layer, once that
// layer no longer uses the shared buffer. It no longer uses those of qkv and context after its
// attention_backward, and those of gate_up and middle after its MLP.)
struct TransformerPlan {
  ModelConfig model;
  int32_t batch = 0;    // B
  int32_t seq_len = 0;  // tokens per complete sequence; this rank has S of them
  // The type of activations and their gradients: of all tensors with T or T' rows below, except
  // stats, lse and the tensors of the head.
  DType dtype = DType::kF32;
  LayerPlacements placements;
  bool training = true;  // false: no gradients and no saved activations
  bool packed = false;   // several documents per sequence (Batch::starts)
  // Decoding plans: the cache. A call has up to S rows of any sequences; B is 1.
  CacheSize cache;

  std::vector<ParamSpec> params;  // parameters of the complete model
  Sharding sharding;              // the rank's part of these parameters
  BlockMemory blocks;             // the locations of weights and gradients
  MemoryPlan memory;
  size_t device_bytes = 0;  // bytes of `memory` without the offloaded buffers
  // The parameters that the rank stores: bf16 matrices if rounds_params(), otherwise the flat fp32
  // shards followed by the scaling state.
  BufferId param_block;
  // The flat shards of frozen parameters, in the type of their layout; absent if there are none.
  BufferId frozen_block;
  // The codes and scales of parameters that are stored in blocks (base/weight_blocks.h).
  BufferId code_block;
  BufferId scale_block;
  BufferId reference_block;  // as many elements as there are parameters; Sharding::has_reference
  // In a training plan only:
  BufferId grad_block;       // gradients of the shards
  BufferId optimizer_state;  // as many fp32 elements as requested

  // The buffers of layers: run_length() entries for each slot; without a pipeline, one entry per
  // layer. buffers_of() returns that of a layer.
  std::vector<LayerBuffers> layers;
  std::vector<CacheBuffers> caches;  // decoding plans: one per layer
  PagedBuffers paged;                // decoding plans
  BufferId output;                   // (T', d) the residual stream after the last layer
  BufferId final_stats;              // NormShape::stats(T')
  BufferId final_normed;             // (T', d)
  BufferId rope_cos;                 // (positions(), h/2), with RoPE
  BufferId rope_sin;                 // (positions(), h/2), with RoPE
  BufferId tokens;                   // (T)
  BufferId targets;                  // (T)
  BufferId starts;                   // (T) packed sequences only
  BufferId weights;                  // (T) loss weights of the targets
  BufferId losses;                   // (T)
  BufferId logits;                   // (head_rows, V)
  BufferId d_logits;                 // (head_rows, V) training; in fp32 the same as logits
  // (T', d) the output of attention or of the MLP, before it is added to the residual stream; in
  // backward the gradient of a norm's input.
  BufferId delta;
  BufferId d_stream;   // (T', d) training: gradient of the residual stream
  BufferId d_context;  // (T, H h) training
  BufferId d_qkv;      // (T, (H + 2K) h) training
  // The next five are for models with experts (expert_memory.h).
  // (R, d) the rows of this rank's tokens, as input and as output of the experts.
  BufferId expert_rows;
  // (R', d) the input and output rows of this rank's experts; on a single rank expert_rows.
  BufferId own_expert_rows;
  BufferId d_expert_act;  // (R', m) training
  BufferId d_gates;       // (T, k) training
  ExpertExchangeBuffers expert_exchange;
  QuantizedBuffers quantized;
  // The next two are for ranks that split rows (RankPart::splits_rows).
  BufferId all_rows;    // (T, d) the gathered rows of all ranks, or the input of a reduce-scatter
  BufferId logit_sums;  // vocab_loss_sums() elements, for the rows of the head
  StackedBuffers stacked;
  AttentionBuffers attention;
  // The next two are for models with experts. If the rank has complete sequences (T* = T),
  // routed_order does not exist, and routed_weights is the same buffer as `weights`, unless there
  // is a reference model.
  BufferId routed_weights;  // (T*) weights of targets
  BufferId routed_order;    // (T*) Routing::order
  AdapterBuffers adapters;
  std::vector<ServedAdapter> served;  // decoding plans
  StageBuffers stage;
  BufferId workspace;
  int64_t workspace_elements = 0;
  // The number of rows that the head and the loss process at a time (head_rows.h). The logits of
  // all T rows are never stored at once.
  int64_t head_rows = 0;

  bool decodes() const { return cache.capacity > 0; }
  // Returns whether matrices are stored in bf16 (RoundedParams). Decoding in bf16 does so, because
  // it halves the bytes that are read per token. Quantized GEMMs need the fp32 parameters, as in
  // training.
  bool rounds_params() const {
    return decodes() && dtype == DType::kBf16 && !model.quantization.enabled();
  }
  // Returns the tensors that are loaded from a checkpoint.
  std::vector<TensorRow> rows() const { return model_rows(params, model); }
  int64_t stored_parameters() const { return sharding.layout.elements(); }
  // Returns the size of the shards' block in units of an fp32 element; the scaling state follows.
  int64_t stored_floats() const { return sharding.layout.stored_floats(); }
  // Returns this rank's part of the computation.
  const RankPart& part() const { return sharding.part; }
  const PipelinePart& pipeline() const { return part().pipeline; }
  // Returns the number of layers of a run.
  size_t run_length() const {
    return static_cast<size_t>(model.num_layers / (pipeline().stage.ranks * pipeline().chunks));
  }
  // Returns the run of a chunk of this rank's stage, with its activations in `slot`.
  LayerRun run(int32_t chunk = 0, int32_t slot = 0) const;
  bool begins_model(const LayerRun& run) const { return run.first == 0; }
  bool ends_model(const LayerRun& run) const { return is_last(run.end - 1); }
  bool is_last(size_t layer) const { return layer + 1 == static_cast<size_t>(model.num_layers); }
  // Returns the index in `layers` of a layer of a run.
  size_t index_of(const LayerRun& run, size_t layer) const {
    return run.slot * run_length() + layer - run.first;
  }
  const LayerBuffers& buffers_of(const LayerRun& run, size_t layer) const {
    return layers[index_of(run, layer)];
  }
  // Return the indices of the rank's blocks in the layout.
  size_t embedding_block() const { return 0; }
  size_t layer_block(size_t layer) const;
  size_t end_block() const { return sharding.layout.blocks().size() - 1; }
  // Return the first block that a pass over the run reads. The backward pass of the last run
  // returns nullopt: its blocks are still available from its forward pass.
  size_t first_block_forward(const LayerRun& run) const {
    return begins_model(run) ? embedding_block() : layer_block(run.first);
  }
  std::optional<size_t> first_block_backward(const LayerRun& run) const {
    if (ends_model(run)) return std::nullopt;
    return layer_block(run.end - 1);
  }
  size_t head_block() const { return model.logits_via_embedding ? embedding_block() : end_block(); }
  // Returns the S positions of each sequence that this rank has.
  Positions own_positions() const;
  int64_t token_count() const {  // T
    return int64_t{batch} * seq_len / part().sequence_sharers();
  }
  // T'. In decoding plans every rank has all rows, because they are few.
  int64_t own_rows() const {
    return decodes() ? token_count() : token_count() / part().tensor.ranks;
  }
  int64_t first_own_row() const {  // in [0, T)
    return decodes() ? 0 : own_rows() * part().tensor.index;
  }
  // Return this rank's share of the columns of the MLP, of the columns of an expert, and of the
  // experts.
  Share mlp_columns() const { return share_of(model.mlp_dim, part().tensor); }
  DenseShape dense_shape(DenseProduct product) const;  // this rank's share
  // Return the number of the GEMM's projections in layers with a dense MLP, and how many of them
  // have adapters.
  int64_t projections_of(DenseProduct product) const;
  int64_t adapters_of(DenseProduct product) const;
  Share expert_columns() const { return share_of(model.experts.mlp_dim, part().tensor); }
  Share own_experts() const { return share_of(model.experts.count, part().expert); }
  // Returns the routing of a layer with experts, for the maximum number of tokens per call.
  RoutingShape routing_shape() const;
  int64_t expert_rows_count() const {  // R
    const RoutingShape shape = routing_shape();
    return shape.own_tokens() * shape.per_token;
  }
  int64_t own_expert_rows_max() const {  // R'
    return received_rows_max(routing_shape(), part().expert.ranks);
  }
  // Returns this rank's share of the vocabulary ids.
  Share vocabulary() const { return share_of(model.vocab_size, part().tensor); }
  int64_t routed_tokens() const { return token_count() * part().sequence_sharers(); }  // T*
  // Returns the index of this rank's first token among the T* tokens.
  int64_t first_routed() const { return token_count() * part().index_among_sharers(); }
  // Returns whether several ranks share a KV head and its storage, so that StackedBuffers are used.
  // In decoding plans each of them has a copy.
  bool stacks_qkv() const { return !decodes() && model.num_kv_heads % part().tensor.ranks != 0; }
  // Returns the number of positions that the tables of RoPE have.
  int32_t positions() const { return decodes() ? cache.capacity : seq_len; }
  // Returns the shape of attention with this rank's heads and positions.
  AttentionShape attention_shape() const;
  // Returns the shape with the heads and positions that the rank has during attention. It equals
  // attention_shape() unless ranks exchange positions for heads.
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

// Returns this rank's shards of the parameters that are stored in blocks.
WeightBlocks weight_blocks(const TransformerPlan& plan, const Arena& arena);
// Returns the boxes of rows() in param_block, in the types in which it stores them: the parts of
// the parameters that the rank computes with, then the scaling state. For plans of decoding.
std::vector<TensorBox> stored_boxes(const TransformerPlan& plan);

}  // namespace muster::trainer
