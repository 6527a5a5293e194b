// Which tokens a rank trains on at a step. A sample is a window of S+1 tokens of the concatenated
// corpus (inputs are its first S, targets its last S); windows begin S tokens apart. The n windows
// are visited in an order that depends on the seed and the epoch alone, so the global batch of a
// step is the same on every mesh and after every restart:
//
//   global sample = the step's first + rank * per_device + k, where the first of step s is s * global_batch unless a batch was
//                   passed over (train.h)
//   epoch = global sample / n, window = permutation(seed, epoch)(global sample mod n)
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/data/shard.h"
#include "trainer_core/data/token_index.h"

namespace muster::trainer {

// A data set of shards, opened and checked. Immutable: any thread.
class TokenDataset {
 public:
  // DataLoss for a shard that is damaged or disagrees with the index (named, with the offset);
  // InvalidArgument when its vocabulary differs from `vocab_size` of the model.
  static absl::StatusOr<std::unique_ptr<TokenDataset>> open(const std::string& folder,
                                                            int32_t vocab_size);

  const TokenIndex& index() const { return index_; }
  uint64_t tokens() const { return starts_.back(); }
  // Tokens [position, position + out.size()) of the concatenation. Requires that they exist.
  absl::Status read(uint64_t position, std::span<int32_t> out) const;
  // Compares every payload's checksum: reads the whole data set.
  absl::Status verify_payloads() const;

 private:
  TokenDataset() = default;

  TokenIndex index_;
  std::vector<std::unique_ptr<ShardReader>> shards_;
  std::vector<uint64_t> starts_;  // position of each shard's first token; then the total
};

// A seeded bijection of 0 … n-1 without tables: a Feistel network keyed by Philox over the next
// even power of two, walked until it lands below n (Black and Rogaway, "Ciphers with arbitrary
// finite domains", 2002).
class Permutation {
 public:
  Permutation(uint64_t n, uint64_t seed, uint64_t epoch);
  uint64_t operator()(uint64_t i) const;  // requires i < n

 private:
  uint64_t n_;
  uint64_t seed_;
  uint64_t epoch_;
  uint32_t half_bits_;
};

struct BatchGeometry {
  int32_t rank = 0;  // position on the data axis
  int32_t ranks = 1;
  int32_t per_device = 1;  // sequences of a rank and step
  int32_t seq_len = 0;     // S
  int32_t vocab_size = 0;

  uint64_t global_batch() const {
    return static_cast<uint64_t>(per_device) * static_cast<uint64_t>(ranks);
  }
};

// Fills a rank's batches. One thread.
class BatchSource {
 public:
  // MaxText's synthetic data: one fixed batch, the same at every step.
  static std::unique_ptr<BatchSource> synthetic(const BatchGeometry& geometry);
  // InvalidArgument when the data set is shorter than one window.
  static absl::StatusOr<std::unique_ptr<BatchSource>> from_shards(
      std::unique_ptr<TokenDataset> dataset, const BatchGeometry& geometry, uint64_t seed,
      bool shuffle);
  virtual ~BatchSource() = default;

  // Of the step whose first global sample is `first`, the rank's sequences from number `skipped` on, as many as the spans
  // hold. tokens, targets, weights: (sequences, S).
  virtual absl::Status fill(uint64_t first, int32_t skipped, std::span<int32_t> tokens,
                            std::span<int32_t> targets, std::span<float> weights) = 0;
};

}  // namespace muster::trainer
