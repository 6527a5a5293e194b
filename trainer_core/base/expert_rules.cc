#include "trainer_core/base/expert_rules.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/train_mesh.h"

namespace muster::trainer {
namespace {

// Returns the numbers of groups that `parts` micro-batches of `tokens` tokens allow and that are
// nearest to `requested`: one below and one above.
std::string nearest_groups(int64_t requested, int64_t parts, int64_t tokens) {
  std::optional<int64_t> below, above;
  const auto offer = [&](int64_t each) {
    const int64_t groups = each * parts;
    if (groups <= requested) below = std::max(below.value_or(groups), groups);
    if (groups >= requested) above = std::min(above.value_or(groups), groups);
  };
  for (int64_t divisor = 1; divisor * divisor <= tokens; ++divisor) {
    if (tokens % divisor != 0) continue;
    offer(divisor);
    offer(tokens / divisor);
  }
  if (!below || !above) return absl::StrCat(below ? *below : *above);
  return absl::StrCat(*below, " or ", *above);
}

absl::Status validate_groups(const TrainConfig& config) {
  const int64_t groups = config.model.experts.num_groups;
  if (groups == 0) return absl::OkStatus();
  const int64_t slices = batch_slice(mesh_of(config.mesh), 0).count;
  const int64_t parts = slices * config.micro_batches();
  const int64_t tokens = int64_t{config.micro_batch_sequences()} * config.max_target_length;
  if (groups % parts == 0 && tokens % (groups / parts) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "num_groups is ", groups, ", but a step's batch is ", parts, " micro-batches of ", tokens,
      " tokens (", slices,
      " slices of the mesh, gradient_accumulation_steps=", config.gradient_accumulation_steps,
      config.pipeline_microbatches == 1
          ? ""
          : absl::StrCat(", num_pipeline_microbatches=", config.pipeline_microbatches),
      "), which must have equally many groups, each of equally many tokens: ",
      nearest_groups(groups, parts, tokens), " would do, or 0 (each micro-batch is a group)"));
}

absl::Status validate_rows(const TrainConfig& config) {
  const ExpertConfig& experts = config.model.experts;
  const int64_t ranks = mesh_of(config.mesh).degree(MeshAxis::kExpert);
  const int64_t tokens = int64_t{config.micro_batch_sequences()} * config.max_target_length;
  const int64_t rows = tokens * expert_rows_per_token(config);
  if (rows <= std::numeric_limits<int32_t>::max()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("num_experts_per_tok is ", experts.per_token, ", which makes up to ", rows,
                   " rows of the experts of one of ", ranks, " expert ranks, but at most ",
                   std::numeric_limits<int32_t>::max(), " are counted"));
}

}  // namespace

int64_t expert_rows_per_token(const TrainConfig& config) {
  const ExpertConfig& experts = config.model.experts;
  const int64_t ranks = mesh_of(config.mesh).degree(MeshAxis::kExpert);
  return std::max<int64_t>(std::min<int64_t>(experts.per_token, experts.count / ranks), 1) * ranks;
}

absl::Status validate_experts(const TrainConfig& config) {
  if (config.model.experts.count <= 1) return absl::OkStatus();
  absl::Status status = validate_groups(config);
  status.Update(validate_rows(config));
  return status;
}

}  // namespace muster::trainer
