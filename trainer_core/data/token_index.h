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
// Enough for a corpus of 10^13 tokens in shards of 10^8.
constexpr size_t kShardsMax = 100'000;

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
  uint64_t bytes = 0;  // of the tokenized text
  // Entropy of the token stream: the loss of a model that knows only token frequencies.
  double unigram_entropy_nats = 0;
  std::vector<Shard> shards;
};

// "shard-00042.mtok"; in a data set that replaces others, "shard-00042.3.mtok". Files of two
// generations lie beside each other until the index lists the new ones.
std::string shard_file_name(size_t index, uint64_t generation = 0);
// Returns the generation in such a name; nullopt for any other name.
std::optional<uint64_t> shard_generation(const std::string& file_name);

// Writes atomically: to a temporary name, synced, then renamed.
absl::Status write_token_index(const std::string& folder, const TokenIndex& index);
// NotFound if the folder has no index (the message explains how to make one); DataLoss names the
// file and the field.
absl::StatusOr<TokenIndex> read_token_index(const std::string& folder);

}  // namespace muster::trainer
