// A model with its plan, memory and operations, for the tests of this folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/random/philox.h"
#include "trainer_core/base/bf16.h"
#include "trainer_core/model/plan_builder.h"
#include "trainer_core/model/transformer.h"

namespace muster::trainer {

struct TestModel {
  TestModel(const ModelConfig& config, int32_t batch, int32_t seq_len,
            RematPolicy remat = RematPolicy::kNone, int32_t threads = 1, bool training = true,
            DType dtype = DType::kF32)
      : TestModel(config, batch, seq_len, layer_placements(remat), threads, training, dtype) {}
  TestModel(const ModelConfig& config, int32_t batch, int32_t seq_len,
            const LayerPlacements& placements, int32_t threads = 1, bool training = true,
            DType dtype = DType::kF32)
      : plan(build_transformer_plan(config, batch, seq_len, dtype, placements, training, threads)),
        arena(plan.memory),
        ops(cpu_ops(threads)),
        model(plan, arena, *ops) {}

  TransformerPlan plan;
  Arena arena;
  std::unique_ptr<Ops> ops;
  Transformer model;
};

// Writes the parameters, and the scaling state, of a complete model to the memory of a decoder.
inline void store_state(const TransformerPlan& plan, Arena& arena, std::span<const float> state) {
  for (const TensorBox& box : stored_boxes(plan)) {
    const std::vector<TensorRow> rows = plan.rows();
    const auto row = std::ranges::find(rows, box.tensor, &TensorRow::name);
    for (int64_t i = 0; i < box.elements(); ++i) {
      const float value = state[static_cast<size_t>(row->offset + i)];
      if (box.dtype == DType::kF32) {
        arena.f32(plan.param_block)[box.offset + i] = value;
      } else {
        static_cast<Bf16*>(arena.buffer(plan.param_block))[box.offset + i] = Bf16::round(value);
      }
    }
  }
}

inline ModelConfig small_config(int32_t heads, int32_t kv_heads, bool tied) {
  ModelConfig config;
  config.vocab_size = 19;
  config.emb_dim = 12;
  config.num_layers = 2;
  config.num_query_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = 6;
  config.mlp_dim = 10;
  config.logits_via_embedding = tied;
  return config;
}

// Fills `out` with values in shift + scale * (-1, 1), which depend on `stream` only.
inline void fill_random(uint64_t stream, std::span<float> out, float scale = 1, float shift = 0) {
  const Philox philox{.key = 7, .stream = stream};
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = shift + scale * (2 * uniform_from_bits(philox(i)[0]) - 1);
  }
}

// Returns a small GPT: LayerNorm, learned positions, biases, an MLP without a gate.
inline ModelConfig small_gpt() {
  ModelConfig config = small_config(2, 2, true);
  config.norm_type = NormType::kLayer;
  config.norm_gain_offset = 1;
  config.position_type = PositionType::kLearned;
  config.trainable_position_size = 80;
  config.activation = Activation::kGelu;
  config.gated_mlp = false;
  config.qkv_bias = config.out_bias = config.mlp_bias = true;
  return config;
}

// Returns a small Gemma with z-loss and, as in Gemma 2, caps on scores and logits and a sliding
// window.
inline ModelConfig small_gemma() {
  ModelConfig config = small_config(4, 1, true);
  config.norm_gain_offset = 1;
  config.activation = Activation::kGelu;
  config.scale_embeddings = true;
  config.logits_scale = 0.5;
  config.query_scale = 0.3;
  config.attn_logits_soft_cap = 2;
  config.final_logits_soft_cap = 3;
  config.sliding_window_size = 5;
  config.z_loss_multiplier = 1e-2;
  return config;
}

// Returns a model with interleaved RoPE pairs, scaled RoPE wavelengths, and a gated MLP with
// biases.
inline ModelConfig small_mixture_of_choices() {
  ModelConfig config = small_config(4, 2, false);
  config.position_type = PositionType::kRopeInterleaved;
  config.rope_scaling = {.factor = 4, .original_max_position = 16};
  config.qkv_bias = config.mlp_bias = true;
  return config;
}

// Returns a model with parallel blocks (MaxText's decoder_block=default) and biases.
inline ModelConfig small_parallel() {
  ModelConfig config = small_config(4, 2, false);
  config.parallel_block = true;
  config.qkv_bias = config.mlp_bias = true;
  return config;
}

// Returns a GLaM without experts: relative positions, and a softmax with an extra zero.
inline ModelConfig small_dense_glam() {
  ModelConfig config = small_config(4, 2, true);
  config.position_type = PositionType::kRelative;
  config.relative_buckets = {.count = 8, .max_distance = 20};
  config.attention_extra_zero = true;
  config.query_scale = 1;
  config.activation = Activation::kGelu;
  config.logits_scale = 0.3;
  return config;
}

// Returns a Mixtral with experts in the second layer, whose capacity is too small for all choices,
// and a load-balancing loss.
inline ModelConfig small_mixtral() {
  ModelConfig config = small_config(4, 2, false);
  config.experts = {.count = 5,
                    .per_token = 2,
                    .mlp_dim = 7,
                    .layer_step = 2,
                    .first_layer = 1,
                    .capacity_factor = 0.8,
                    .balance_weight = 0.1};
  return config;
}

inline ModelConfig dropless(ModelConfig config) {
  config.experts.capacity_factor = -1;
  return config;
}

// Returns a small GLaM with experts in every second layer, from the first on.
inline ModelConfig small_glam() {
  ModelConfig config = small_dense_glam();
  config.experts = small_mixtral().experts;
  config.experts.first_layer = 0;
  config.experts.router = RouterStyle::kPax;
  config.experts.activation = Activation::kRelu;
  config.experts.gated = false;
  return config;
}

// Writes initial weights to `params`, with gains of norms that differ from one and nonzero biases.
inline void randomize_params(const std::vector<ParamSpec>& table, std::span<float> params) {
  init_params(table, 3, params.data());
  uint64_t stream = 100;
  for (const ParamSpec& spec : table) {
    if (spec.init == InitKind::kNormal) continue;
    fill_random(
        ++stream,
        params.subspan(static_cast<size_t>(spec.offset), static_cast<size_t>(spec.elements())),
        0.4F, spec.init == InitKind::kOnes ? 1.0F : 0.0F);
  }
}

inline void randomize_params(const TransformerPlan& plan, std::span<float> params) {
  randomize_params(plan.params, params);
}

struct TestBatch {
  TestBatch(int32_t vocab, int64_t rows, uint64_t stream = 0) {
    const Philox philox{.key = 11, .stream = stream};
    for (int64_t i = 0; i < rows; ++i) {
      const Philox::Block words = philox(static_cast<uint64_t>(i));
      tokens.push_back(static_cast<int32_t>(words[0] % static_cast<uint32_t>(vocab)));
      targets.push_back(static_cast<int32_t>(words[1] % static_cast<uint32_t>(vocab)));
      weights.push_back(words[2] % 4 == 0 ? 0.0F : 1.0F);
    }
  }
  Batch view() const { return {tokens, targets, weights}; }

  std::vector<int32_t> tokens, targets;
  std::vector<float> weights;
};

}  // namespace muster::trainer
