#include "trainer_core/loop/preference_passes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "trainer_core/base/check.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/comm/exact_floats.h"

namespace muster::trainer {
namespace {

// The ranks of a slice, which compute parts of the same sequences.
constexpr GroupAxes kSlice = {
    .axes = {MeshAxis::kPipeline, MeshAxis::kSequence, MeshAxis::kContext, MeshAxis::kTensor}};

bool has_dropout(const ModelConfig& model) {
  return model.dropout_rate > 0 || model.input_dropout_rate > 0 || model.lora.dropout > 0;
}

}  // namespace

void PreferenceBatch::hold(const Batch& batch) {
  tokens.assign(batch.tokens.begin(), batch.tokens.end());
  targets.assign(batch.targets.begin(), batch.targets.end());
  starts.assign(batch.starts.begin(), batch.starts.end());
  labels.assign(batch.weights.begin(), batch.weights.end());
  dropout = batch.dropout;
  weights.resize(labels.size());
  shares.resize(labels.size());
}

// Returns the index of the answer to which a target of this rank belongs. `row`: the target's row
// in the micro-batch.
size_t PreferencePasses::answer(size_t micro_batch, size_t row, float label) const {
  const auto sequences = static_cast<size_t>(config_.micro_batch_sequences());
  const size_t sequence = row / static_cast<size_t>(positions_.count());
  const auto pair = static_cast<size_t>(std::abs(label)) - 1;
  MUSTER_CHECK(pair < static_cast<size_t>(pairs_max_) && sequence < sequences)
      << "pair " << pair << " of sequence " << sequence;
  return 2 * ((micro_batch * sequences + sequence) * static_cast<size_t>(pairs_max_) + pair) +
         (label < 0 ? 1 : 0);
}

// Adds the scores of this rank's rows to `scores`.
absl::Status PreferencePasses::run_passes(std::vector<PreferenceBatch>& batches, Scores& scores) {
  StepPasses passes(rank_model_);
  std::vector<TargetScore> own;
  rank_model_.model().set_scores(&own);
  const auto load = [&](int32_t i) { return batches[static_cast<size_t>(i)].batch(); };
  (void)passes.evaluate(static_cast<int32_t>(batches.size()), load).value();  // `load` cannot fail
  rank_model_.model().set_scores(nullptr);
  if (auto status = rank_model_.finish_passes(); !status.ok()) return status;
  if (own.empty()) return absl::OkStatus();  // a stage of the pipeline without the head
  const TransformerPlan& plan = rank_model_.plan().model;
  const auto rows = static_cast<size_t>(plan.own_rows());
  const auto first = static_cast<size_t>(plan.first_own_row());
  MUSTER_CHECK(own.size() == batches.size() * rows)
      << own.size() << " scores of " << batches.size() << " micro-batches of " << rows << " rows";
  for (size_t i = 0; i < batches.size(); ++i) {
    for (size_t row = 0; row < rows; ++row) {
      const float label = batches[i].labels[first + row];
      if (label != 0) scores[answer(i, first + row, label)] += own[i * rows + row].log_probability;
    }
  }
  return absl::OkStatus();
}

// Adds the values of the ranks of the slice. Each target is scored by one of them.
absl::Status PreferencePasses::reduce(std::vector<Scores*> all) {
  ProcessGroup& slice = context_.groups.of(kSlice);
  if (slice.size() == 1) return absl::OkStatus();
  std::vector<float> sums;
  for (const Scores* scores : all) {
    for (const double score : *scores) {
      const auto parts = split_units(score);
      sums.insert(sums.end(), parts.begin(), parts.end());
    }
  }
  if (auto status = slice.all_reduce(sums, "preferences"); !status.ok()) return status;
  std::span<const float> rest = sums;
  for (Scores* scores : all) {
    for (double& score : *scores) {
      score = join_units(rest);
      rest = rest.subspan(3);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<PreferenceSums> PreferencePasses::score(std::vector<PreferenceBatch>& batches,
                                                       ScoreFor purpose) {
  const size_t answers = batches.size() * static_cast<size_t>(config_.micro_batch_sequences()) *
                         static_cast<size_t>(pairs_max_) * 2;
  Scores policy(answers), reference(answers), tokens(answers);
  const TransformerPlan& plan = rank_model_.plan().model;
  const auto own = static_cast<size_t>(plan.own_rows());
  const auto first = static_cast<size_t>(plan.first_own_row());
  const bool has_head = plan.pipeline().ends_model();
  for (size_t i = 0; i < batches.size(); ++i) {
    PreferenceBatch& batch = batches[i];
    std::ranges::transform(batch.labels, batch.weights.begin(),
                           [](float label) { return label != 0 ? 1.0F : 0.0F; });
    for (size_t row = first; has_head && row < first + own; ++row)
      if (batch.labels[row] != 0) tokens[answer(i, row, batch.labels[row])] += 1;
  }
  rank_model_.read_reference(true);
  absl::Status status = run_passes(batches, reference);
  rank_model_.read_reference(false);
  const bool drops = purpose == ScoreFor::kGradient && has_dropout(config_.model);
  for (PreferenceBatch& batch : batches) batch.dropout.in_forward = drops;
  if (status.ok()) status = run_passes(batches, policy);
  for (PreferenceBatch& batch : batches) batch.dropout.in_forward = false;
  if (status.ok()) status = reduce({&policy, &reference, &tokens});
  if (!status.ok()) return status;

  const bool counts = context_.groups.of(kSlice).rank() == 0;
  PreferenceSums sums;
  std::vector<float> weight_of(answers);
  for (size_t at = 0; at < answers; at += 2) {
    if (tokens[at] == 0 || tokens[at + 1] == 0) continue;
    const PairLoss loss = dpo_loss(config_.dpo, {.policy_chosen = policy[at],
                                                 .policy_rejected = policy[at + 1],
                                                 .reference_chosen = reference[at],
                                                 .reference_rejected = reference[at + 1],
                                                 .chosen_tokens = tokens[at],
                                                 .rejected_tokens = tokens[at + 1]});
    // A cross-entropy is a negative log-probability.
    weight_of[at] = static_cast<float>(-loss.d_chosen);
    weight_of[at + 1] = static_cast<float>(-loss.d_rejected);
    if (!counts) continue;
    sums.pairs += 1;
    sums.loss += loss.loss;
    sums.chosen_reward += loss.chosen_reward;
    sums.rejected_reward += loss.rejected_reward;
    sums.accurate += loss.chosen_reward > loss.rejected_reward ? 1 : 0;
    const bool averages = config_.dpo.loss == DpoLoss::kIpo;  // as in TRL
    sums.chosen_logps += policy[at] / (averages ? tokens[at] : 1);
    sums.rejected_logps += policy[at + 1] / (averages ? tokens[at + 1] : 1);
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    PreferenceBatch& batch = batches[i];
    for (size_t row = 0; row < batch.labels.size(); ++row) {
      const float label = batch.labels[row];
      batch.weights[row] = batch.shares[row] = 0;
      if (label == 0) continue;
      batch.weights[row] = weight_of[answer(i, row, label)];
      const size_t chosen = answer(i, row, std::abs(label)), rejected = chosen + 1;
      if (tokens[chosen] > 0 && tokens[rejected] > 0)
        batch.shares[row] = static_cast<float>(1 / (tokens[chosen] + tokens[rejected]));
    }
  }
  return sums;
}

absl::Status reduce_preferences(ProcessGroup& world, PreferenceSums& sums) {
  const std::array<double*, 7> fields = {&sums.pairs,           &sums.loss,     &sums.chosen_reward,
                                         &sums.rejected_reward, &sums.accurate, &sums.chosen_logps,
                                         &sums.rejected_logps};
  std::array<float, 21> parts{};
  for (size_t i = 0; i < fields.size(); ++i)
    std::ranges::copy(split_units(*fields[i]), std::span(parts).subspan(3 * i).begin());
  if (auto status = world.all_reduce(parts, "preference sums"); !status.ok()) return status;
  for (size_t i = 0; i < fields.size(); ++i)
    *fields[i] = join_units(std::span(parts).subspan(3 * i));
  return absl::OkStatus();
}

}  // namespace muster::trainer
