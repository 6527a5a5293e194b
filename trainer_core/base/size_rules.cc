#include "trainer_core/base/size_rules.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/expert_rules.h"

namespace muster::trainer {
namespace {

// The maximum number of parameters, 17.6 trillion: the bytes of a model, its gradients and moments
// can be counted in 64 bits.
constexpr int64_t kParametersMax = int64_t{1} << 44;
// The maximum number of elements of a step's saved activations: 4.5 PB of fp32.
constexpr int64_t kActivationsMax = int64_t{1} << 50;

// Widths of a layer, whose sums give the parameters of a layer and its saved activations per token.
// Requires sizes in range.
struct Widths {
  explicit Widths(const ModelConfig& model)
      : stream(model.emb_dim),
        query(double{1} * model.num_query_heads * model.head_dim),
        kv(double{1} * model.num_kv_heads * model.head_dim),
        dense(model.mlp_dim),
        expert(model.experts.count > 1 ? model.experts.mlp_dim : 0) {}

  double stream, query, kv, dense, expert;
};

}  // namespace

absl::Status check_parameter_count(const ModelConfig& model) {
  const Widths width(model);
  const ExpertConfig& experts = model.experts;
  // Uses the larger of both kinds of layers for all layers, and includes the router.
  const double mlp = std::max(width.dense, (width.expert + 1) * experts.count);
  const double embeddings =
      (model.logits_via_embedding ? 1.0 : 2.0) * model.vocab_size * width.stream +
      double{1} * model.trainable_position_size * width.stream;
  // Counts gates and biases, even if the model has none.
  const double parameters =
      embeddings + 2 * width.stream +
      model.num_layers * (width.stream * (6 + 2 * (width.query + width.kv) + 3 * mlp) +
                          width.query + 2 * width.kv + 2 * mlp +
                          double{1} * model.num_query_heads * model.relative_buckets.count);
  if (parameters <= static_cast<double>(kParametersMax)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the model has ", parameters, " parameters, but must have at most ", kParametersMax,
      ": base_emb_dim is ", model.emb_dim, ", base_num_query_heads times head_dim ", width.query,
      ", base_mlp_dim ", model.mlp_dim, ", num_experts ", experts.count, ", base_moe_mlp_dim ",
      experts.mlp_dim, ", vocab_size ", model.vocab_size));
}

absl::Status check_activation_count(const TrainConfig& config) {
  const ModelConfig& model = config.model;
  const Widths width(model);
  const auto rows = static_cast<double>(expert_rows_per_token(config));
  const double mlp =
      std::max(width.dense, (width.expert + width.stream) * rows + model.experts.count);
  const double activations =
      double{1} * config.per_device_batch_size * config.max_target_length * model.num_layers *
      (4 * width.stream + 2 * (width.query + width.kv) + 3 * mlp + model.num_query_heads + 4);
  if (activations <= static_cast<double>(kActivationsMax)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a step of per_device_batch_size (", config.per_device_batch_size,
                   ") times max_target_length (", config.max_target_length, ") tokens retains ",
                   activations, " elements, but must retain at most ", kActivationsMax));
}

}  // namespace muster::trainer
