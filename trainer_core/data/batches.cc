#include "trainer_core/data/batches.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

#include "common/philox.h"

namespace muster::trainer {
namespace {

constexpr int kFeistelRounds = 6;
// Philox streams of this file: an epoch's shuffle takes kShuffleStream + epoch.
constexpr uint64_t kShuffleStream = uint64_t{1} << 48;
constexpr uint64_t kSyntheticStream = uint64_t{2} << 48;

absl::Status check_shard(const ShardReader& shard, const TokenIndex& index,
                         const TokenIndex::Shard& entry) {
  const ShardHeader& header = shard.header();
  if (header.token_count != entry.tokens) {
    return absl::DataLossError(absl::StrCat(entry.file, " holds ", header.token_count,
                                            " tokens, but ", kTokenIndexFile, " says ",
                                            entry.tokens, "; tokenise again"));
  }
  if (header.vocab_size != index.vocab_size ||
      header.tokenizer_fingerprint != index.tokenizer_fingerprint) {
    return absl::DataLossError(absl::StrCat(entry.file, " was made with another tokenizer than ",
                                            kTokenIndexFile, " says; tokenise again"));
  }
  return absl::OkStatus();
}

// Counted from the step's first sample.
uint64_t first_of_rank(const BatchGeometry& geometry) {
  return static_cast<uint64_t>(geometry.rank) * static_cast<uint64_t>(geometry.per_device);
}

class SyntheticSource : public BatchSource {
 public:
  explicit SyntheticSource(const BatchGeometry& geometry) : geometry_(geometry) {}

  absl::Status fill(uint64_t /*first*/, int32_t skipped, std::span<int32_t> tokens,
                    std::span<int32_t> targets, std::span<float> weights) override {
    const Philox philox{.key = 0, .stream = kSyntheticStream};
    const auto length = static_cast<uint64_t>(geometry_.seq_len);
    const uint64_t begin = first_of_rank(geometry_) + static_cast<uint64_t>(skipped);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const uint64_t sample = begin + i / length;
      const uint64_t position = sample * (length + 1) + i % length;
      tokens[i] = token(philox, position);
      targets[i] = token(philox, position + 1);
    }
    std::fill(weights.begin(), weights.end(), 1.0F);
    return absl::OkStatus();
  }

 private:
  int32_t token(const Philox& philox, uint64_t position) const {
    return static_cast<int32_t>(philox(position)[0] % static_cast<uint32_t>(geometry_.vocab_size));
  }

  BatchGeometry geometry_;
};

class ShardSource : public BatchSource {
 public:
  ShardSource(std::unique_ptr<TokenDataset> dataset, const BatchGeometry& geometry, uint64_t seed,
              bool shuffle)
      : dataset_(std::move(dataset)),
        geometry_(geometry),
        seed_(seed),
        shuffle_(shuffle),
        windows_((dataset_->tokens() - 1) / static_cast<uint64_t>(geometry.seq_len)),
        window_(static_cast<size_t>(geometry.seq_len) + 1) {}

  absl::Status fill(uint64_t first, int32_t skipped, std::span<int32_t> tokens,
                    std::span<int32_t> targets, std::span<float> weights) override {
    const auto length = static_cast<size_t>(geometry_.seq_len);
    const uint64_t begin = first + first_of_rank(geometry_) + static_cast<uint64_t>(skipped);
    for (uint64_t k = 0; k < tokens.size() / length; ++k) {
      const uint64_t start = window_of(begin + k) * length;
      if (auto status = dataset_->read(start, window_); !status.ok()) return status;
      std::copy_n(window_.begin(), length, tokens.begin() + static_cast<ptrdiff_t>(k * length));
      std::copy_n(window_.begin() + 1, length,
                  targets.begin() + static_cast<ptrdiff_t>(k * length));
    }
    std::fill(weights.begin(), weights.end(), 1.0F);
    return absl::OkStatus();
  }

 private:
  uint64_t window_of(uint64_t sample) const {
    const uint64_t position = sample % windows_;
    return shuffle_ ? Permutation(windows_, seed_, sample / windows_)(position) : position;
  }

  std::unique_ptr<TokenDataset> dataset_;
  BatchGeometry geometry_;
  uint64_t seed_;
  bool shuffle_;
  uint64_t windows_;
  std::vector<int32_t> window_;  // (S + 1)
};

}  // namespace

absl::StatusOr<std::unique_ptr<TokenDataset>> TokenDataset::open(const std::string& folder,
                                                                 int32_t vocab_size) {
  auto index = read_token_index(folder);
  if (!index.ok()) return index.status();
  if (index->vocab_size != static_cast<uint32_t>(vocab_size)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the data set in ", folder, " was made with a vocabulary of ", index->vocab_size,
        ", but vocab_size=", vocab_size, "; set vocab_size=", index->vocab_size,
        " or tokenise with another tokenizer"));
  }
  auto dataset = absl::WrapUnique(new TokenDataset);
  uint64_t position = 0;
  for (const TokenIndex::Shard& entry : index->shards) {
    auto shard = ShardReader::open(absl::StrCat(folder, "/", entry.file));
    if (!shard.ok()) return shard.status();
    if (auto status = check_shard(**shard, *index, entry); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(folder, "/", status.message()));
    }
    dataset->starts_.push_back(position);
    position += entry.tokens;
    dataset->shards_.push_back(std::move(*shard));
  }
  dataset->starts_.push_back(position);
  dataset->index_ = std::move(*index);
  return dataset;
}

absl::Status TokenDataset::read(uint64_t position, std::span<int32_t> out) const {
  size_t shard = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), position) -
                                     starts_.begin()) -
                 1;
  while (!out.empty()) {
    const uint64_t inside = position - starts_[shard];
    const uint64_t count = std::min<uint64_t>(out.size(), starts_[shard + 1] - position);
    if (auto status = shards_[shard]->read(inside, out.first(count)); !status.ok()) return status;
    out = out.subspan(count);
    position += count;
    ++shard;
  }
  return absl::OkStatus();
}

absl::Status TokenDataset::verify_payloads() const {
  for (const auto& shard : shards_) {
    if (auto status = shard->verify_payload(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

Permutation::Permutation(uint64_t n, uint64_t seed, uint64_t epoch)
    : n_(n), seed_(seed), epoch_(epoch) {
  const auto bits = static_cast<uint32_t>(std::bit_width(n > 1 ? n - 1 : 1));
  half_bits_ = (bits + 1) / 2;
}

uint64_t Permutation::operator()(uint64_t i) const {
  const Philox philox{.key = seed_, .stream = kShuffleStream + epoch_};
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  // The network's domain is less than four times n, so the walk takes under four turns on average.
  do {
    uint64_t left = i >> half_bits_;
    uint64_t right = i & mask;
    for (uint64_t round = 0; round < kFeistelRounds; ++round) {
      const uint64_t mixed = philox((round << 56) | right)[0];
      left = std::exchange(right, (left ^ mixed) & mask);
    }
    i = (left << half_bits_) | right;
  } while (i >= n_);
  return i;
}

std::unique_ptr<BatchSource> BatchSource::synthetic(const BatchGeometry& geometry) {
  return std::make_unique<SyntheticSource>(geometry);
}

absl::StatusOr<std::unique_ptr<BatchSource>> BatchSource::from_shards(
    std::unique_ptr<TokenDataset> dataset, const BatchGeometry& geometry, uint64_t seed,
    bool shuffle) {
  const uint64_t window = static_cast<uint64_t>(geometry.seq_len) + 1;
  if (dataset->tokens() < window) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the data set has ", dataset->tokens(), " tokens, fewer than the ", window,
        " of one sample; lower max_target_length (", geometry.seq_len, ") or give more text"));
  }
  return std::make_unique<ShardSource>(std::move(dataset), geometry, seed, shuffle);
}

}  // namespace muster::trainer
