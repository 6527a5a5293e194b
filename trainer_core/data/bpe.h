// Byte-pair encoding of bytes: Sennrich et al., "Neural machine translation of rare words with
// subword units" (2016), over bytes as in GPT-2. A word starts as one token per byte. Then the
// adjacent pair with the lowest rank (of equal ranks, the leftmost) is merged into one token,
// repeatedly, until no pair has a rank.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

namespace muster::trainer {

// The merges of a vocabulary. Filled once, then immutable and thread-safe.
class BpeMerges {
 public:
  BpeMerges() { byte_ids_.fill(-1); }

  // Set and return the token of a byte; -1: none.
  void set_byte(uint8_t byte, int32_t id) { byte_ids_[byte] = id; }
  int32_t byte_id(uint8_t byte) const { return byte_ids_[byte]; }
  // Adds the merge of tokens `left` and `right` into `merged`; lower ranks merge first.
  void add(int32_t left, int32_t right, uint32_t rank, int32_t merged);
  // Sets words that are tokens themselves: append() gives such a word its token without merges
  // (ignore_merges of tokenizer.json, and tiktoken).
  void set_whole_words(absl::flat_hash_map<std::string, int32_t> words) {
    whole_words_ = std::move(words);
  }

  // Appends the tokens of `word` to `ids`. Requires that every byte has an id. Takes O(n log n)
  // time for n bytes.
  void append(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };

  const Merge* find(int32_t left, int32_t right) const;
  void merge_short(std::vector<int32_t>& ids, size_t begin) const;
  void merge_long(std::string_view word, std::vector<int32_t>& ids) const;

  std::array<int32_t, 256> byte_ids_;
  absl::flat_hash_map<uint64_t, Merge> merges_;
  absl::flat_hash_map<std::string, int32_t> whole_words_;
};

}  // namespace muster::trainer
