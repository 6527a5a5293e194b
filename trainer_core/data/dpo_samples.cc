#include "trainer_core/data/dpo_samples.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "trainer_core/data/best_fit.h"

namespace muster::trainer {
namespace {

// A pair that is used: its document, and the tokens of its two parts.
struct Pair {
  uint64_t document = 0;
  int32_t chosen = 0;
  int32_t rejected = 0;

  // Positions that the pair takes in a sequence: the last token of a part is only a target.
  int32_t positions() const { return chosen + rejected - 2; }
};

class DpoSequences : public Samples {
 public:
  DpoSequences(Corpus corpus, std::vector<std::vector<Pair>> sequences)
      : corpus_(std::move(corpus)), sequences_(std::move(sequences)) {}

  uint64_t size() const override { return sequences_.size(); }

  absl::Status read(uint64_t number, const SequenceSpans& out) override {
    size_t at = 0;
    float label = 1;
    for (const Pair& pair : sequences_[number]) {
      const auto range = corpus_.document(pair.document);
      if (!range.ok()) return range.status();
      for (const auto& [begin, count, sign] :
           {std::tuple(range->begin, pair.chosen, 1.0F),
            std::tuple(range->begin + static_cast<uint64_t>(pair.chosen), pair.rejected, -1.0F)}) {
        if (auto status = read_answer(begin, count, sign * label, at, out); !status.ok())
          return status;
        at += static_cast<size_t>(count) - 1;
      }
      ++label;
    }
    blank_from(at, out);
    return absl::OkStatus();
  }

 private:
  absl::Status read_answer(uint64_t begin, int32_t tokens, float label, size_t at,
                           const SequenceSpans& out) {
    const size_t count = static_cast<size_t>(tokens) - 1;
    window_.resize(count + 1);
    if (auto status = corpus_.read(begin, window_); !status.ok()) return status;
    std::ranges::copy(std::span(window_).first(count), out.tokens.subspan(at).begin());
    std::ranges::copy(std::span(window_).subspan(1), out.targets.subspan(at).begin());
    const auto weights = out.weights.subspan(at, count);
    if (auto status = corpus_.read_weights(begin + 1, weights); !status.ok()) return status;
    for (float& weight : weights) weight *= label;
    if (!out.starts.empty())
      std::ranges::fill(out.starts.subspan(at, count), static_cast<int32_t>(at));
    return absl::OkStatus();
  }

  Corpus corpus_;
  std::vector<std::vector<Pair>> sequences_;
  std::vector<int32_t> window_;
};

// Returns the tokens of the first part of a pair; 0 if the marks are not those of a pair.
size_t chosen_tokens(const std::vector<float>& marks) {
  const auto rejected = std::ranges::find(marks, kRejectedBegins);
  if (marks.empty() || marks[0] != kChosenBegins || rejected == marks.end()) return 0;
  const auto is_token = [](float mark) { return mark == 0 || mark == 1; };
  const bool has_chosen = std::find(marks.begin(), rejected, 1.0F) != rejected;
  const bool has_rejected = std::find(rejected, marks.end(), 1.0F) != marks.end();
  const bool is_plain = std::all_of(marks.begin() + 1, rejected, is_token) &&
                        std::all_of(rejected + 1, marks.end(), is_token);
  return has_chosen && has_rejected && is_plain ? static_cast<size_t>(rejected - marks.begin()) : 0;
}

}  // namespace

absl::StatusOr<DpoSamples> make_dpo_samples(Corpus corpus, int32_t seq_len, bool packs) {
  DpoSamples made;
  std::vector<Pair> pairs;
  std::vector<float> marks;
  made.counts.pairs = corpus.documents();
  for (uint64_t document = 0; document < corpus.documents(); ++document) {
    const auto range = corpus.document(document);
    if (!range.ok()) return range.status();
    const uint64_t tokens = range->end - range->begin;
    if (tokens - 2 > static_cast<uint64_t>(seq_len)) {
      ++made.counts.too_long;
      continue;
    }
    marks.resize(tokens);
    if (auto status = corpus.read_weights(range->begin, marks); !status.ok()) return status;
    const size_t chosen = chosen_tokens(marks);
    if (chosen == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("pair ", document,
                       " has no chosen and rejected answer; make the data set "
                       "with muster tokenize --dpo"));
    }
    pairs.push_back(
        {document, static_cast<int32_t>(chosen), static_cast<int32_t>(tokens - chosen)});
    made.counts.positions += static_cast<uint64_t>(pairs.back().positions());
  }
  auto sequences = packs ? best_fit_decreasing(std::move(pairs), seq_len, &Pair::positions)
                         : one_each(std::move(pairs));
  for (const auto& sequence : sequences)
    made.counts.pairs_max = std::max(made.counts.pairs_max, static_cast<int64_t>(sequence.size()));
  made.samples = std::make_unique<DpoSequences>(std::move(corpus), std::move(sequences));
  return made;
}

}  // namespace muster::trainer
