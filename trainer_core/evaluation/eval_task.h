// An evaluation task: a file of JSON lines becomes requests whose tokens are scored, and the scores
// become metrics. The tasks are those of lm-evaluation-harness, with its prompts and metrics:
//
//   lambada        {"text"}: the last word of a text, given the words before it
//   boolq          {"passage", "question", "answer"}: " yes" or " no" after passage and question
//   choice         {"context", "choices", "gold"}: the most probable of several continuations
//   loglikelihood  {"context", "continuation"}
//   perplexity     {"text"}: all tokens of a text
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/base/eval_task_files.h"
#include "trainer_core/base/target_score.h"
#include "trainer_core/data/tokenizer.h"
#include "trainer_core/evaluation/scored_tokens.h"
#include "trainer_core/evaluation/task_result.h"

namespace muster::trainer {

// The size of an evaluation file is limited, because every rank holds its tokens.
constexpr uint64_t kEvalFileBytesMax = 1ULL << 30;
// Choices repeat their context, so that the requests of a file may be much larger than the file.
constexpr uint64_t kEvalTokensMax = 1ULL << 29;
constexpr uint64_t kEvalRequestsMax = 1ULL << 24;

// A line of the file, as requests.
struct EvalSample {
  size_t line = 0;           // from 1
  size_t first_request = 0;  // its requests are consecutive
  size_t requests = 0;
  int64_t gold = 0;             // choice: the right one, from 0
  std::vector<double> lengths;  // choice: the characters of each choice
  double words = 0, bytes = 0;  // perplexity: of the text
};

class EvalTask {
 public:
  // Reads the file and encodes its texts. Returns NotFound, with the files of its folder, if there
  // is no such file. Returns InvalidArgument with file, line and field for a line that is not of
  // the task, and for a text that ScoredTokenEncoder rejects; and with the file if it has no token
  // to score, more than kEvalTokensMax tokens or more than kEvalRequestsMax requests.
  static absl::StatusOr<EvalTask> load(const EvalTaskFile& file, const Tokenizer& tokenizer,
                                       const ScoringOptions& options);

  const std::string& name() const { return name_; }
  // Returns a hash of the name and of the requests, which must be equal on all ranks.
  uint64_t fingerprint() const;
  // Returns the requests, and leaves none. Called once.
  std::vector<ScoredTokens> take_requests() { return std::move(requests_); }

  // Returns the metrics of the scores of all requests; TaskResult::seconds is 0.
  TaskResult result(std::span<const TargetScore> scores) const;
  // Returns a JSON line per sample, with its line in the file, the log-likelihoods of its requests
  // and whether they are greedy. The values of `perplexity` are sums over its windows.
  std::string sample_lines(std::span<const TargetScore> scores) const;

 private:
  EvalTask() = default;

  std::string name_;
  std::vector<EvalSample> samples_;
  std::vector<ScoredTokens> requests_;
  uint64_t tokens_ = 0;         // inputs of all requests
  std::vector<double> scored_;  // scored tokens of each sample
};

}  // namespace muster::trainer
