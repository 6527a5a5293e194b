// Caches the tokens of recent words, because texts repeat words.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

namespace muster::trainer {

// A cache of fixed size. The hash of a word selects its entry, and a new word replaces the old word
// of the entry. Not thread-safe.
class WordCache {
 public:
  WordCache() : entries_(kEntries) {}

  // Appends the tokens of `word` to `ids`. Calls `encode(word, ids)`, which appends the tokens or
  // returns an error, if the word is not in the cache. Requires that the result of `encode` depends
  // only on the word.
  template <class Encode>
  absl::Status append(std::string_view word, std::vector<int32_t>& ids, const Encode& encode) {
    if (word.size() > kWordBytesMax) return encode(word, ids);
    Entry& entry = entries_[hash(word) % kEntries];
    if (entry.word_bytes == word.size() &&
        std::memcmp(entry.word.data(), word.data(), word.size()) == 0) {
      ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.ids_count);
      return absl::OkStatus();
    }
    const size_t before = ids.size();
    if (auto status = encode(word, ids); !status.ok()) return status;
    const size_t count = ids.size() - before;
    if (count > kIdsMax) return absl::OkStatus();
    std::copy(ids.begin() + static_cast<ptrdiff_t>(before), ids.end(), entry.ids.begin());
    std::memcpy(entry.word.data(), word.data(), word.size());
    entry.word_bytes = static_cast<uint8_t>(word.size());
    entry.ids_count = static_cast<uint8_t>(count);
    return absl::OkStatus();
  }

 private:
  // 2 MiB of entries: enough for most repeated words of a corpus, and about the size of a core's L2
  // cache.
  static constexpr size_t kEntries = size_t{1} << 15;
  static constexpr size_t kWordBytesMax = 24;
  static constexpr size_t kIdsMax = 9;

  struct Entry {
    std::array<int32_t, kIdsMax> ids;
    std::array<char, kWordBytesMax> word;
    uint8_t word_bytes = 0;  // 0: unused
    uint8_t ids_count = 0;
  };
  static_assert(sizeof(Entry) == 64);

  // Returns a hash that multiplies and folds eight bytes at a time, as wyhash does. It only decides
  // how words spread over the entries.
  static uint64_t hash(std::string_view word) {
    constexpr uint64_t kOdd = 0x9E3779B97F4A7C15ULL;
    uint64_t hash = word.size();
    while (!word.empty()) {
      uint64_t piece = 0;
      const size_t bytes = std::min(word.size(), sizeof(piece));
      std::memcpy(&piece, word.data(), bytes);
      hash = (hash ^ piece) * kOdd;
      hash ^= hash >> 32;
      word.remove_prefix(bytes);
    }
    return hash * kOdd;
  }

  std::vector<Entry> entries_;
};

}  // namespace muster::trainer
