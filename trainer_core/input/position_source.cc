#include "trainer_core/input/position_source.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace muster::trainer {
namespace {

class PositionSource : public BatchSource {
 public:
  PositionSource(std::unique_ptr<BatchSource> sequences, int32_t seq_len,
                 const SequenceParts& parts)
      : sequences_(std::move(sequences)),
        parts_(parts),
        tokens_(static_cast<size_t>(seq_len)),
        targets_(tokens_.size()),
        starts_(tokens_.size()),
        weights_(tokens_.size()) {}

  absl::Status fill(uint64_t first, int32_t skipped, const SequenceSpans& out) override {
    const auto count = static_cast<size_t>(parts_.tokens.count());
    const bool packed = !out.starts.empty();
    const SequenceSpans whole{tokens_, targets_, packed ? std::span(starts_) : std::span<int32_t>(),
                              weights_};
    for (size_t i = 0; i < out.tokens.size() / count; ++i) {
      if (auto status = sequences_->fill(first, skipped + static_cast<int32_t>(i), whole);
          !status.ok())
        return status;
      pick(parts_.tokens, tokens_, i, out.tokens);
      pick(parts_.tokens, targets_, i, out.targets);
      pick(parts_.tokens, weights_, i, out.weights);
      if (packed) pick(parts_.starts, starts_, i, out.starts);
    }
    return absl::OkStatus();
  }

 private:
  // Copies the rank's positions of `whole` to sequence `i` of `out`.
  template <class T>
  static void pick(const Positions& positions, const std::vector<T>& whole, size_t i,
                   std::span<T> out) {
    auto to = out.begin() + static_cast<std::ptrdiff_t>(i) * positions.count();
    for (int run = 0; run < positions.runs(); ++run)
      to = std::copy_n(whole.begin() + positions.run(run).position, positions.run(run).count, to);
  }

  std::unique_ptr<BatchSource> sequences_;
  SequenceParts parts_;
  // One whole sequence.
  std::vector<int32_t> tokens_, targets_, starts_;
  std::vector<float> weights_;
};

}  // namespace

std::unique_ptr<BatchSource> positions_of(std::unique_ptr<BatchSource> sequences, int32_t seq_len,
                                          const SequenceParts& parts) {
  return std::make_unique<PositionSource>(std::move(sequences), seq_len, parts);
}

}  // namespace muster::trainer
