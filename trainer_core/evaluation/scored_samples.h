// Evaluation sequences that are made of scored tokens, and the scores of their tokens. Packed
// sequences have several requests, which do not attend to each other (data/samples.h); otherwise
// each sequence has one. The layout depends on the requests and the length alone, so it is the same
// on every rank.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer_core/base/target_score.h"
#include "trainer_core/data/samples.h"
#include "trainer_core/evaluation/scored_tokens.h"

namespace muster::trainer {

// The places of requests in sequences of seq_len tokens. Immutable and thread-safe.
class ScoredLayout {
 public:
  // Requires that each request has at most `seq_len` inputs.
  ScoredLayout(std::vector<ScoredTokens> requests, int32_t seq_len, Samples::Kind kind);

  const std::vector<ScoredTokens>& requests() const { return requests_; }
  uint64_t sequences() const { return first_request_.size() - 1; }
  int32_t seq_len() const { return seq_len_; }
  // Writes sequence `number`. Every target of a request has weight 1, because experts do not route
  // tokens of weight 0. Requires that `out` has room for one sequence.
  void write(uint64_t number, const SequenceSpans& out) const;
  // Adds the scores of the tokens of sequence `number` to those of its requests. `scores` has one
  // element per position, `sums` one per request.
  void add_scores(uint64_t number, std::span<const TargetScore> scores,
                  std::span<TargetScore> sums) const;

 private:
  template <class Visit>
  void for_each(uint64_t number, const Visit& visit) const;

  std::vector<ScoredTokens> requests_;
  int32_t seq_len_;
  // The first request of each sequence, and at the end the number of requests.
  std::vector<size_t> first_request_;
};

// Returns the sequences of a layout.
std::unique_ptr<Samples> scored_samples(std::shared_ptr<const ScoredLayout> layout);

}  // namespace muster::trainer
