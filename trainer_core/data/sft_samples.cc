#include "trainer_core/data/sft_samples.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "trainer_core/data/best_fit.h"

namespace muster::trainer {
namespace {

// A sample that is used: its document, and the positions that it takes.
struct Piece {
  uint64_t document = 0;
  int32_t positions = 0;
};
class SftSequences : public Samples {
 public:
  SftSequences(Corpus corpus, int32_t seq_len, const SftOptions& options, std::vector<Piece> pieces)
      : corpus_(std::move(corpus)),
        options_(options),
        sequences_(options.packs
                       ? best_fit_decreasing(std::move(pieces), seq_len, &Piece::positions)
                       : one_each(pieces)),
        tokens_(static_cast<size_t>(seq_len) + 1) {}

  uint64_t size() const override { return sequences_.size(); }

  absl::Status read(uint64_t number, const SequenceSpans& out) override {
    size_t at = 0;
    for (const Piece& piece : sequences_[number]) {
      const auto count = static_cast<size_t>(piece.positions);
      const SequenceSpans part{out.tokens.subspan(at, count), out.targets.subspan(at, count),
                               out.starts.empty() ? out.starts : out.starts.subspan(at, count),
                               out.weights.subspan(at, count)};
      if (auto status = read_piece(piece, part); !status.ok()) return status;
      std::ranges::fill(part.starts, static_cast<int32_t>(at));
      at += count;
    }
    blank_from(at, out);
    return absl::OkStatus();
  }

 private:
  absl::Status read_piece(const Piece& piece, const SequenceSpans& out) {
    const auto range = corpus_.document(piece.document);
    if (!range.ok()) return range.status();
    const size_t count = out.tokens.size();
    const auto window = std::span(tokens_).first(count + 1);
    if (auto status = corpus_.read(range->begin, window); !status.ok()) return status;
    std::ranges::copy(window.first(count), out.tokens.begin());
    std::ranges::copy(window.subspan(1), out.targets.begin());
    if (!options_.completion_only) {
      std::ranges::fill(out.weights, 1.0F);
    } else if (auto status = corpus_.read_weights(range->begin + 1, out.weights); !status.ok()) {
      return status;
    }
    if (!options_.averages_samples) return absl::OkStatus();
    const auto counted =
        std::ranges::count_if(out.weights, [](float weight) { return weight > 0; });
    for (float& weight : out.weights) weight /= static_cast<float>(std::max<int64_t>(counted, 1));
    return absl::OkStatus();
  }

  Corpus corpus_;
  const SftOptions options_;
  std::vector<std::vector<Piece>> sequences_;
  std::vector<int32_t> tokens_;  // (S + 1)
};

// Returns whether one of the targets [1, count) of a sample has a weight.
absl::StatusOr<bool> has_weighted_target(const Corpus& corpus, uint64_t begin, uint64_t count,
                                         std::vector<float>& buffer) {
  buffer.resize(count - 1);
  if (auto status = corpus.read_weights(begin + 1, buffer); !status.ok()) return status;
  return std::ranges::any_of(buffer, [](float weight) { return weight > 0; });
}

}  // namespace

absl::StatusOr<SftSamples> make_sft_samples(Corpus corpus, int32_t seq_len,
                                            const SftOptions& options) {
  SftSamples made;
  std::vector<Piece> pieces;
  std::vector<float> buffer;
  const auto tokens_max = static_cast<uint64_t>(seq_len) + 1;
  made.counts.samples = corpus.documents();
  for (uint64_t document = 0; document < corpus.documents(); ++document) {
    const auto range = corpus.document(document);
    if (!range.ok()) return range.status();
    const uint64_t tokens = range->end - range->begin;
    const bool is_long = tokens > tokens_max;
    if (is_long) ++made.counts.too_long;
    if (is_long && options.drops_long) continue;
    bool is_learned = tokens > 1;
    if (is_long && options.completion_only) {
      const auto found = has_weighted_target(corpus, range->begin, tokens_max, buffer);
      if (!found.ok()) return found.status();
      is_learned = *found;
    }
    if (!is_learned) {
      ++made.counts.unlearned;
      continue;
    }
    const uint64_t positions = std::min(tokens, tokens_max) - 1;
    made.counts.positions += positions;
    pieces.push_back({document, static_cast<int32_t>(positions)});
  }
  made.samples =
      std::make_unique<SftSequences>(std::move(corpus), seq_len, options, std::move(pieces));
  return made;
}

}  // namespace muster::trainer
