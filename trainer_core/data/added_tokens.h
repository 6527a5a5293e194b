// Finds Hugging Face's added tokens, which are matched verbatim in a text before the text is split
// into words.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster::trainer {

// A set of added tokens. Filled once with add(), then immutable and thread-safe.
class AddedTokens {
 public:
  // Adds a token. Requires that `content` is not empty.
  void add(std::string content, int32_t id);
  bool empty() const { return count_ == 0; }

  struct Found {
    size_t begin = 0;  // bytes from the text's start; text.size(): not found
    size_t bytes = 0;
    int32_t id = 0;
  };
  // Returns the leftmost token at or after byte `from`; if several begin there, the longest.
  Found find(std::string_view text, size_t from) const;

 private:
  struct Token {
    std::string content;
    int32_t id;
  };

  std::array<std::vector<Token>, 256> by_first_byte_;  // longest first
  size_t count_ = 0;
};

}  // namespace muster::trainer
