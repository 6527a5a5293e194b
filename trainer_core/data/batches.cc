#include "trainer_core/data/batches.h"

#include <algorithm>
#include <utility>

#include "common/random/philox.h"
#include "trainer_core/data/blend.h"
#include "trainer_core/data/permutation.h"

namespace muster::trainer {
namespace {

constexpr uint64_t kSyntheticStream = uint64_t{2} << 48;
// The difference between the seeds of adjacent data sets. With equal seeds, data sets of the same
// size would be read in the same order. Multiples of the golden ratio spread adjacent numbers over
// all bits.
constexpr uint64_t kSourceSeedStep = 0x9E3779B97F4A7C15;

// Returns the index of the rank's first sample, relative to the first sample of the step.
uint64_t first_of_rank(const BatchGeometry& geometry) {
  return static_cast<uint64_t>(geometry.rank) * static_cast<uint64_t>(geometry.per_device);
}

class SyntheticSource : public BatchSource {
 public:
  explicit SyntheticSource(const BatchGeometry& geometry) : geometry_(geometry) {}

  absl::Status fill(uint64_t /*first*/, int32_t skipped, const SequenceSpans& out) override {
    const Philox philox{.key = 0, .stream = kSyntheticStream};
    const auto length = static_cast<uint64_t>(geometry_.seq_len);
    const uint64_t begin = first_of_rank(geometry_) + static_cast<uint64_t>(skipped);
    for (size_t i = 0; i < out.tokens.size(); ++i) {
      const uint64_t sample = begin + i / length;
      const uint64_t position = sample * (length + 1) + i % length;
      out.tokens[i] = token(philox, position);
      out.targets[i] = token(philox, position + 1);
    }
    std::ranges::fill(out.starts, 0);
    std::ranges::fill(out.weights, 1.0F);
    return absl::OkStatus();
  }

 private:
  int32_t token(const Philox& philox, uint64_t position) const {
    return static_cast<int32_t>(philox(position)[0] % static_cast<uint32_t>(geometry_.vocab_size));
  }

  BatchGeometry geometry_;
};

// Iterates over the sequences of a batch; `read_sample` reads each sequence.
class SampleSource : public BatchSource {
 public:
  explicit SampleSource(const BatchGeometry& geometry) : geometry_(geometry) {}

  absl::Status fill(uint64_t first, int32_t skipped, const SequenceSpans& out) override {
    const auto length = static_cast<size_t>(geometry_.seq_len);
    const uint64_t begin = first + first_of_rank(geometry_) + static_cast<uint64_t>(skipped);
    for (size_t k = 0; k < out.tokens.size() / length; ++k) {
      const SequenceSpans sequence = out.sequence(k, length);
      // The last micro-batch may be larger than the remainder of the rank's share.
      const bool is_own =
          static_cast<size_t>(skipped) + k < static_cast<size_t>(geometry_.per_device);
      if (!is_own) {
        blank(sequence);
      } else if (auto status = read_sample(begin + k, sequence); !status.ok()) {
        return status;
      }
    }
    return absl::OkStatus();
  }

 protected:
  static void blank(const SequenceSpans& out) {
    std::ranges::fill(out.tokens, 0);
    std::ranges::fill(out.targets, 0);
    std::ranges::fill(out.starts, 0);
    std::ranges::fill(out.weights, 0.0F);
  }

 private:
  virtual absl::Status read_sample(uint64_t sample, const SequenceSpans& out) = 0;

  BatchGeometry geometry_;
};

std::vector<double> weights_of(const std::vector<WeightedSamples>& sources) {
  std::vector<double> weights;
  for (const WeightedSamples& source : sources) weights.push_back(source.weight);
  return weights;
}

class EndlessSource : public SampleSource {
 public:
  EndlessSource(std::vector<WeightedSamples> sources, const BatchGeometry& geometry, uint64_t seed,
                bool shuffle)
      : SampleSource(geometry),
        sources_(std::move(sources)),
        blend_(weights_of(sources_)),
        seed_(seed),
        shuffle_(shuffle) {}

 private:
  absl::Status read_sample(uint64_t sample, const SequenceSpans& out) override {
    const Blend::Pick pick = blend_(sample);
    Samples& samples = *sources_[pick.source].samples;
    const uint64_t n = samples.size(), place = pick.number % n;
    const uint64_t seed = seed_ + pick.source * kSourceSeedStep;
    return samples.read(shuffle_ ? Permutation(n, seed, pick.number / n)(place) : place, out);
  }

  std::vector<WeightedSamples> sources_;
  Blend blend_;
  uint64_t seed_;
  bool shuffle_;
};

class OnceSource : public SampleSource {
 public:
  OnceSource(std::vector<std::unique_ptr<Samples>> sources, const BatchGeometry& geometry)
      : SampleSource(geometry), sources_(std::move(sources)) {}

 private:
  absl::Status read_sample(uint64_t sample, const SequenceSpans& out) override {
    for (const auto& source : sources_) {
      if (sample < source->size()) return source->read(sample, out);
      sample -= source->size();
    }
    blank(out);
    return absl::OkStatus();
  }

  std::vector<std::unique_ptr<Samples>> sources_;
};

}  // namespace

std::unique_ptr<BatchSource> BatchSource::synthetic(const BatchGeometry& geometry) {
  return std::make_unique<SyntheticSource>(geometry);
}

std::unique_ptr<BatchSource> BatchSource::endless(std::vector<WeightedSamples> sources,
                                                  const BatchGeometry& geometry, uint64_t seed,
                                                  bool shuffle) {
  return std::make_unique<EndlessSource>(std::move(sources), geometry, seed, shuffle);
}

std::unique_ptr<BatchSource> BatchSource::once(std::vector<std::unique_ptr<Samples>> sources,
                                               const BatchGeometry& geometry) {
  return std::make_unique<OnceSource>(std::move(sources), geometry);
}

}  // namespace muster::trainer
