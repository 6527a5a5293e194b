// `index.json` of a folder of token shards: the files of the data set, in order, and figures of the
// tokenization.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

constexpr char kTokenIndexFile[] = "index.json";
// The maximum number of shards: enough for 10^13 tokens in shards of 10^8.
constexpr size_t kShardsMax = 100'000;

// The contents of the index.
struct TokenIndex {
  struct Shard {
    std::string file;  // a plain name inside the folder
    uint64_t tokens = 0;
    uint64_t documents = 0;
  };

  uint32_t vocab_size = 0;
  uint64_t tokenizer_fingerprint = 0;
  uint64_t tokens = 0;
  uint64_t documents = 0;
  uint64_t bytes = 0;  // bytes of the text before it was tokenized
  // Entropy of the token frequencies: the loss of a model that predicts every token by its
  // frequency.
  double unigram_entropy_nats = 0;
  bool has_pairs = false;  // the documents are pairs of answers (dpo_samples.h)
  int32_t begin_id = -1;   // the token with which plain samples begin (--bos); -1: none
  std::vector<Shard> shards;
};

// Returns the name of a shard: "shard-00042.mtok" or, in generation 3, "shard-00042.3.mtok". A data
// set that replaces an older one in the same folder has the next generation, so that the files of
// both can exist until the index lists the new ones.
std::string shard_file_name(size_t index, uint64_t generation = 0);
// Returns the generation in the name of a shard; nullopt if `file_name` is not such a name.
std::optional<uint64_t> shard_generation(const std::string& file_name);

// Writes the index atomically: to a temporary name, then synced and renamed.
absl::Status write_token_index(const std::string& folder, const TokenIndex& index);
// Reads the index of a folder. Returns NotFound if there is none (the message states how to make
// one), and DataLoss with the path and the wrong field.
absl::StatusOr<TokenIndex> read_token_index(const std::string& folder);

}  // namespace muster::trainer
