// The definition of a decoder-only transformer: its sizes, and the choices in which model families
// differ (Llama, Mistral, Gemma, GPT). A field has the meaning of MaxText's key of the same name.
// MaxText fixes some choices by `decoder_block`; the comments of these fields list the families
// that use each value.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/status.h>

#include "trainer_core/base/activation.h"
#include "trainer_core/base/lora.h"
#include "trainer_core/base/quantization.h"
#include "trainer_core/base/relative_buckets.h"

namespace muster::trainer {

// The normalisation of layers. kRms: x / sqrt(mean(x²) + eps), without a bias (Zhang and Sennrich,
// 2019). kLayer: (x - mean) / sqrt(var + eps), with a bias (Ba et al., 2016), used by the GPT
// family.
enum class NormType : uint8_t { kRms, kLayer };

// How the model encodes positions. kRope rotates the pairs (i, i + h/2) of a head's h elements, the
// layout of Hugging Face and MaxText. kRopeInterleaved rotates the pairs (2i, 2i + 1) (Su et al.,
// "RoFormer", 2021), the layout of Pax and AXLearn. kLearned adds a row of a table to the embedding
// (GPT). kRelative adds to each attention score a bias that depends on layer, head and distance
// (T5, GLaM).
enum class PositionType : uint8_t { kRope, kRopeInterleaved, kLearned, kRelative };

// The variants of expert routing. Each token chooses `per_token` experts; the tokens of one group
// compete for each expert's capacity. kMaxText (Mixtral, Jiang et al., 2024): each sequence is a
// group, choices are accepted in token order, and all choices count in the load-balancing loss.
// kPax (GShard, GLaM): a group is one of num_groups equal parts of a step's batch or, with
// num_groups = 0, a rank's micro-batch. The first choices of all tokens are accepted before any
// second choice, and only first choices count in the load-balancing loss.
enum class RouterStyle : uint8_t { kMaxText, kPax };

// The scaling of RoPE's long wavelengths in Llama 3.1. A factor of 1 disables it.
struct RopeScaling {
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  int32_t original_max_position = 8192;  // tokens

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

// The experts that replace the MLP in some layers (Shazeer et al., 2017).
struct ExpertConfig {
  int32_t count = 1;       // 1: every layer has an MLP
  int32_t per_token = 1;   // experts that a token chooses
  int32_t mlp_dim = 0;     // MLP width of an expert
  int32_t layer_step = 1;  // experts are in layers first_layer, first_layer + layer_step, …
  int32_t first_layer = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;  // as ModelConfig::gated_mlp
  RouterStyle router = RouterStyle::kMaxText;
  // An expert's capacity, relative to an even share of a group's choices (see capacity()); 0 or
  // less: unlimited, so no token is dropped.
  double capacity_factor = -1;
  double balance_weight = 0;  // weight of each layer's load-balancing loss
  int32_t num_groups = 0;     // kPax only: groups per step; 0: see RouterStyle

  // Returns whether layer `layer` (from 0) has experts instead of an MLP.
  bool in_layer(int64_t layer) const {
    return count > 1 && layer >= first_layer && (layer - first_layer) % layer_step == 0;
  }
  // Returns the maximum number of tokens that an expert accepts from a group of `group_tokens`
  // tokens; 0: unlimited. kMaxText: capacity_factor * ceil(group_tokens * per_token / count). kPax:
  // capacity_factor * group_tokens / count, rounded up to a multiple of 4. Both are clamped to [1,
  // group_tokens]; MaxText and Pax can compute a capacity of 0, which closes an expert.
  int64_t capacity(int64_t group_tokens) const;

  friend bool operator==(const ExpertConfig&, const ExpertConfig&) = default;
};

// The sizes and choices of one model.
struct ModelConfig {
  std::string name = "default";
  int32_t vocab_size = 0;
  int32_t emb_dim = 0;
  int32_t num_layers = 0;
  int32_t num_query_heads = 0;
  int32_t num_kv_heads = 0;  // divides num_query_heads
  int32_t head_dim = 0;      // even with RoPE
  int32_t mlp_dim = 0;

  NormType norm_type = NormType::kRms;
  double norm_epsilon = 1e-5;
  // A norm multiplies by norm_gain_offset + gain. The offset is 1 in Gemma and in MaxText's GPT-3.
  double norm_gain_offset = 0;

  // If true, attention and the MLP read the same norm, and the outputs of both are added to the
  // residual stream (Wang and Komatsuzaki, GPT-J, 2021; decoder_block=default in MaxText). If
  // false, each has its own norm, and the norm of the MLP reads the residual stream after
  // attention.
  bool parallel_block = false;

  PositionType position_type = PositionType::kRope;
  double rope_max_timescale = 10'000;
  RopeScaling rope_scaling{};
  // kLearned only: rows of the position table, the longest sequence.
  int32_t trainable_position_size = 0;
  RelativeBuckets relative_buckets{};  // kRelative only

  Activation activation = Activation::kSilu;
  // If true, the MLP computes activation(gate) * up, as in SwiGLU and GeGLU (Shazeer, 2020); if
  // false, activation(up).
  bool gated_mlp = true;
  bool qkv_bias = false;  // biases of the query, key and value projections
  bool out_bias = false;  // bias of attention's output projection
  bool mlp_bias = false;  // biases of the MLP's projections

  bool logits_via_embedding = false;  // the head shares the embedding's matrix
  bool scale_embeddings = false;      // multiplies embeddings by sqrt(emb_dim): Gemma
  double logits_scale = 1;            // multiplies the final hidden state before the head
  double query_scale = 0;             // multiplies attention scores; 0: 1 / sqrt(head_dim)
  // Corresponds to Pax's attention_extra_logit = 0: the denominator of the attention softmax grows
  // by exp(0), so that a head can attend to nothing (GLaM).
  bool attention_extra_zero = false;
  double attn_logits_soft_cap = 0;   // scores become cap * tanh(scores / cap); 0: none
  double final_logits_soft_cap = 0;  // the same for the logits
  // Number of tokens that a token attends to, including itself; 0: itself and all earlier tokens.
  int32_t sliding_window_size = 0;
  double z_loss_multiplier = 0;  // adds multiplier * logsumexp(logits)² to each token's loss
  ExpertConfig experts{};
  // Dropout rates in training, in [0, 1); 0: none. dropout_rate applies to the outputs of attention
  // and of the MLP and to the MLP's activation, but not to activations of experts.
  // input_dropout_rate applies to the input of the first layer.
  double dropout_rate = 0;
  double input_dropout_rate = 0;
  double init_std = 0;            // standard deviation of initial matrices; 0: 1 / sqrt(fan_in)
  double embedding_init_std = 0;  // the same for token embeddings; 0: as init_std
  QuantizationConfig quantization{};
  LoraConfig lora{};

  // Return whether the model has a table of positions, or rotates queries and keys.
  bool learns_positions() const { return position_type == PositionType::kLearned; }
  bool has_rope() const {
    return position_type == PositionType::kRope || position_type == PositionType::kRopeInterleaved;
  }

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Checks that sizes are in range, that num_kv_heads divides num_query_heads, and that choices are
// compatible. Returns InvalidArgument with the key as a user types it.
absl::Status validate(const ModelConfig& model);

}  // namespace muster::trainer
