// Defines a decoder-only transformer: sizes, and the choices in which families differ (Llama,
// Mistral, Gemma, GPT). A field has the meaning of MaxText's key of the same name. Choices that
// MaxText fixes by `decoder_block` list the families that use them.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/status.h>

#include "trainer_core/base/activation.h"
#include "trainer_core/base/quantization.h"
#include "trainer_core/base/relative_buckets.h"

namespace muster::trainer {

// kRms: x / sqrt(mean(x²) + eps), no bias (Zhang and Sennrich, 2019). kLayer: (x - mean) / sqrt(var
// + eps), with a bias (Ba et al., 2016): the GPT family.
enum class NormType : uint8_t { kRms, kLayer };

// How the model encodes positions. kRope rotates pairs (i, i + h/2) of a head (Hugging Face's and
// MaxText's layout), kRopeInterleaved pairs (2i, 2i + 1) (Su et al., "RoFormer", 2021; Pax,
// AXLearn). kLearned adds a row of a table to the embedding (GPT). kRelative adds to each score a
// per-layer bias by head and distance (T5, GLaM).
enum class PositionType : uint8_t { kRope, kRopeInterleaved, kLearned, kRelative };

// The variants of expert routing. kMaxText (Mixtral, Jiang et al., 2024): a sequence is a group,
// choices compete in token order, and all of them count for balance. kPax (GShard, GLaM): groups
// are num_groups runs of tokens of a step's batch, or each rank's micro-batch; first choices
// compete before second ones, and only first choices count for balance.
enum class RouterStyle : uint8_t { kMaxText, kPax };

// Llama 3.1's scaling of RoPE's long wavelengths; factor 1 disables it.
struct RopeScaling {
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  int32_t original_max_position = 8192;  // tokens

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

// The experts that replace the MLP in some layers: Shazeer et al., 2017.
struct ExpertConfig {
  int32_t count = 1;  // 1: every layer has an MLP
  int32_t per_token = 1;
  int32_t mlp_dim = 0;     // one expert's width
  int32_t layer_step = 1;  // layers first_layer, first_layer + layer_step, … have experts
  int32_t first_layer = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;  // as ModelConfig's
  RouterStyle router = RouterStyle::kMaxText;
  // Capacity relative to an even share of a group's choices; 0 or less: no token is dropped.
  double capacity_factor = -1;
  double balance_weight = 0;  // weight of each layer's load-balancing loss
  int32_t num_groups = 0;     // kPax: groups per step; 0: a rank's micro-batch is a group

  bool in_layer(int64_t layer) const {
    return count > 1 && layer >= first_layer && (layer - first_layer) % layer_step == 0;
  }
  // Returns the rows that an expert accepts from a group of so many tokens; 0: all. kMaxText:
  // capacity_factor times ceil(tokens k / E). kPax: capacity_factor times tokens / E, rounded up to
  // a multiple of 4. Both are at least 1, although the originals may close an expert, and at most
  // all tokens.
  int64_t capacity(int64_t group_tokens) const;

  friend bool operator==(const ExpertConfig&, const ExpertConfig&) = default;
};

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
  // A norm multiplies by offset + gain: 1 in Gemma and in MaxText's GPT-3.
  double norm_gain_offset = 0;

  // Attention and the MLP read the same norm in parallel, and both are added to the residual stream
  // (Wang and Komatsuzaki, GPT-J, 2021; MaxText's decoder_block default). Otherwise each has its
  // own norm, and the MLP's reads the stream after attention.
  bool parallel_block = false;

  PositionType position_type = PositionType::kRope;
  double rope_max_timescale = 10'000;
  RopeScaling rope_scaling{};
  int32_t trainable_position_size = 0;  // rows of the table of kLearned: the longest sequence
  RelativeBuckets relative_buckets{};   // kRelative only

  Activation activation = Activation::kSilu;
  // activation(gate) * up, as in SwiGLU and GeGLU (Shazeer, 2020); else activation(up).
  bool gated_mlp = true;
  bool qkv_bias = false;  // biases of the query, key and value projections
  bool out_bias = false;  // bias of attention's output projection
  bool mlp_bias = false;  // biases of the MLP's projections

  bool logits_via_embedding = false;  // tied head
  bool scale_embeddings = false;      // embeddings are multiplied by sqrt(emb_dim): Gemma
  double logits_scale = 1;            // multiplies the final hidden state before the head
  double query_scale = 0;             // multiplies the scores; 0: 1 / sqrt(head_dim)
  // Pax's attention_extra_logit of 0: the softmax's denominator grows by 1, so that a head may
  // attend to nothing (GLaM).
  bool attention_extra_zero = false;
  double attn_logits_soft_cap = 0;   // scores become cap * tanh(scores / cap); 0: none
  double final_logits_soft_cap = 0;  // the same for the logits
  // Number of tokens that a token attends to, including itself; 0: all earlier ones.
  int32_t sliding_window_size = 0;
  double z_loss_multiplier = 0;  // adds multiplier * logsumexp(logits)² to each token's loss
  ExpertConfig experts{};
  // Dropout in training, in [0, 1); 0: none. dropout_rate applies to the outputs of attention and
  // the MLP and to the MLP's activation (not the experts'); the second rate applies to the first
  // layer's input.
  double dropout_rate = 0;
  double input_dropout_rate = 0;
  double init_std = 0;            // standard deviation of the initial matrices; 0: 1 / sqrt(fan_in)
  double embedding_init_std = 0;  // for token embeddings; 0: as other matrices
  QuantizationConfig quantization{};

  bool learns_positions() const { return position_type == PositionType::kLearned; }
  bool has_rope() const {
    return position_type == PositionType::kRope || position_type == PositionType::kRopeInterleaved;
  }

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Checks that sizes are in range, head counts divide, and choices are compatible. InvalidArgument
// names the key as a user types it.
absl::Status validate(const ModelConfig& model);

}  // namespace muster::trainer
