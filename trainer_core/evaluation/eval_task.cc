#include "trainer_core/evaluation/eval_task.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/random/fnv.h"
#include "trainer_core/evaluation/task_lines.h"

namespace muster::trainer {
namespace {

// Appends the requests of a line.
absl::Status encode_line(const TaskLine& line, const ScoredTokenEncoder& encoder,
                         EvalSample& sample, std::vector<ScoredTokens>& requests) {
  sample.first_request = requests.size();
  if (line.form == TaskForm::kRolling) {
    auto windows = encoder.rolling(line.context);
    if (!windows.ok()) return windows.status();
    std::ranges::move(*windows, std::back_inserter(requests));
    sample.words = static_cast<double>(word_count(line.context));
    sample.bytes = static_cast<double>(line.context.size());
  }
  auto continuations = encoder.continuations(line.context, line.continuations);
  if (!continuations.ok()) return continuations.status();
  std::ranges::move(*continuations, std::back_inserter(requests));
  for (const std::string& continuation : line.continuations)
    sample.lengths.push_back(static_cast<double>(characters_of_choice(continuation)));
  sample.requests = requests.size() - sample.first_request;
  sample.gold = line.gold;
  return absl::OkStatus();
}

absl::Status check_size(uint64_t tokens, uint64_t requests) {
  if (tokens <= kEvalTokensMax && requests <= kEvalRequestsMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the file has ", tokens, " tokens in ", requests, " requests until here; at most ",
      kEvalTokensMax, " tokens in ", kEvalRequestsMax, " requests are evaluated: divide the file"));
}

std::span<const TargetScore> scores_of(const EvalSample& sample,
                                       std::span<const TargetScore> scores) {
  return scores.subspan(sample.first_request, sample.requests);
}

double sum_of_scores(std::span<const TargetScore> scores) {
  double sum = 0;
  for (const TargetScore& score : scores) sum += score.log_probability;
  return sum;
}

bool all_greedy(std::span<const TargetScore> scores) {
  return std::ranges::all_of(scores, &TargetScore::is_greedy);
}

// Returns 1 if the gold choice has the largest log-likelihood, divided by its length if
// `by_length`; else 0. The first of equal ones counts.
double is_right(const EvalSample& sample, std::span<const TargetScore> scores, bool by_length) {
  const auto value = [&](size_t i) {
    return scores[i].log_probability / (by_length ? sample.lengths[i] : 1);
  };
  size_t best = 0;
  for (size_t i = 1; i < scores.size(); ++i)
    if (value(i) > value(best)) best = i;
  return static_cast<int64_t>(best) == sample.gold ? 1 : 0;
}

}  // namespace

absl::StatusOr<EvalTask> EvalTask::load(const EvalTaskFile& file, const Tokenizer& tokenizer,
                                        const ScoringOptions& options) {
  EvalTask task;
  task.name_ = file.task;
  const ScoredTokenEncoder encoder(tokenizer, options);
  const absl::Status status =
      for_each_task_line(file, [&](size_t number, const TaskLine& line) -> absl::Status {
        EvalSample sample;
        sample.line = number;
        if (auto encoded = encode_line(line, encoder, sample, task.requests_); !encoded.ok())
          return encoded;
        double scored = 0;
        for (size_t i = sample.first_request; i < task.requests_.size(); ++i) {
          scored += task.requests_[i].scored;
          task.tokens_ += task.requests_[i].inputs();
        }
        task.scored_.push_back(scored);
        task.samples_.push_back(std::move(sample));
        return check_size(task.tokens_, task.requests_.size());
      });
  if (!status.ok()) return status;
  if (task.requests_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("eval_tasks: ", file.task, ": ", file.file, " has no token to score"));
  }
  return task;
}

uint64_t EvalTask::fingerprint() const {
  uint64_t hash = fnv1a(name_);
  for (const ScoredTokens& request : requests_) {
    const std::string_view bytes(reinterpret_cast<const char*>(request.tokens.data()),
                                 request.tokens.size() * sizeof(int32_t));
    hash = fnv1a(absl::StrCat(hash, "/", request.scored, "/", fnv1a(bytes)));
  }
  return hash;
}

TaskResult EvalTask::result(std::span<const TargetScore> scores) const {
  TaskResult result{name_, {}, samples_.size(), tokens_, 0};
  std::vector<double> sums, greedy, right, right_by_length, ones, words, bytes;
  for (const EvalSample& sample : samples_) {
    const auto own = scores_of(sample, scores);
    sums.push_back(sum_of_scores(own));
    greedy.push_back(all_greedy(own) ? 1 : 0);
    ones.push_back(1);
    words.push_back(sample.words);
    bytes.push_back(sample.bytes);
    if (sample.lengths.empty()) continue;
    right.push_back(is_right(sample, own, /*by_length=*/false));
    right_by_length.push_back(is_right(sample, own, /*by_length=*/true));
  }
  switch (task_form(name_)) {
    case TaskForm::kContinuation:
      result.metrics = {mean_metric("acc", greedy), perplexity_metric("perplexity", sums, ones)};
      break;
    case TaskForm::kChoice:
      result.metrics = {mean_metric("acc", right), mean_metric("acc_norm", right_by_length)};
      break;
    case TaskForm::kRolling: {
      TaskMetric bits = perplexity_metric("bits_per_byte", sums, bytes);
      if (bits.standard_error) *bits.standard_error /= bits.value * std::log(2);
      bits.value = std::log2(bits.value);
      result.metrics = {perplexity_metric("perplexity", sums, scored_),
                        perplexity_metric("word_perplexity", sums, words),
                        perplexity_metric("byte_perplexity", sums, bytes), std::move(bits)};
      break;
    }
  }
  return result;
}

std::string EvalTask::sample_lines(std::span<const TargetScore> scores) const {
  std::string lines;
  for (const EvalSample& sample : samples_) {
    const auto own = scores_of(sample, scores);
    nlohmann::ordered_json line = {{"line", sample.line}};
    if (task_form(name_) == TaskForm::kChoice) {
      line["gold"] = sample.gold;
      line["log_likelihoods"] = nlohmann::ordered_json::array();
      for (const TargetScore& score : own) line["log_likelihoods"].push_back(score.log_probability);
    } else {
      line["log_likelihood"] = sum_of_scores(own);
      line["is_greedy"] = all_greedy(own);
    }
    absl::StrAppend(&lines, line.dump(), "\n");
  }
  return lines;
}

}  // namespace muster::trainer
