#include "trainer_core/evaluation/scored_samples.h"

#include <algorithm>
#include <utility>

#include "trainer_core/base/check.h"

namespace muster::trainer {
namespace {

class ScoredSamples : public Samples {
 public:
  explicit ScoredSamples(std::shared_ptr<const ScoredLayout> layout) : layout_(std::move(layout)) {}

  uint64_t size() const override { return layout_->sequences(); }
  absl::Status read(uint64_t number, const SequenceSpans& out) override {
    layout_->write(number, out);
    return absl::OkStatus();
  }

 private:
  std::shared_ptr<const ScoredLayout> layout_;
};

}  // namespace

ScoredLayout::ScoredLayout(std::vector<ScoredTokens> requests, int32_t seq_len, Samples::Kind kind)
    : requests_(std::move(requests)), seq_len_(seq_len) {
  const auto length = static_cast<size_t>(seq_len);
  size_t used = length;  // positions of the last sequence
  for (size_t i = 0; i < requests_.size(); ++i) {
    const size_t inputs = requests_[i].inputs();
    MUSTER_CHECK(inputs <= length) << inputs << " inputs in a sequence of " << length;
    if (kind != Samples::Kind::kPacked || used + inputs > length) {
      first_request_.push_back(i);
      used = 0;
    }
    used += inputs;
  }
  first_request_.push_back(requests_.size());
}

// Calls `visit` for each request of a sequence, with its first position.
template <class Visit>
void ScoredLayout::for_each(uint64_t number, const Visit& visit) const {
  size_t position = 0;
  for (size_t i = first_request_[number]; i < first_request_[number + 1]; ++i) {
    visit(i, position);
    position += requests_[i].inputs();
  }
}

void ScoredLayout::write(uint64_t number, const SequenceSpans& out) const {
  std::ranges::fill(out.tokens, 0);
  std::ranges::fill(out.targets, 0);
  std::ranges::fill(out.weights, 0.0F);
  size_t end = 0;
  const auto set_starts = [&](size_t first) {
    if (!out.starts.empty())
      std::ranges::fill(out.starts.subspan(first), static_cast<int32_t>(first));
  };
  for_each(number, [&](size_t i, size_t first) {
    const std::span<const int32_t> tokens = requests_[i].tokens;
    const size_t inputs = requests_[i].inputs();
    std::ranges::copy(tokens.first(inputs), out.tokens.subspan(first).begin());
    std::ranges::copy(tokens.subspan(1), out.targets.subspan(first).begin());
    std::ranges::fill(out.weights.subspan(first, inputs), 1.0F);
    set_starts(first);
    end = first + inputs;
  });
  if (end < out.tokens.size()) set_starts(end);
}

void ScoredLayout::add_scores(uint64_t number, std::span<const TargetScore> scores,
                              std::span<TargetScore> sums) const {
  for_each(number, [&](size_t i, size_t first) {
    const size_t inputs = requests_[i].inputs();
    const auto scored = static_cast<size_t>(requests_[i].scored);
    for (const TargetScore& score : scores.subspan(first + inputs - scored, scored)) {
      sums[i].log_probability += score.log_probability;
      sums[i].is_greedy = sums[i].is_greedy && score.is_greedy;
    }
  });
}

std::unique_ptr<Samples> scored_samples(std::shared_ptr<const ScoredLayout> layout) {
  return std::make_unique<ScoredSamples>(std::move(layout));
}

}  // namespace muster::trainer
