// Converts the tokens of one request to text as they are generated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {

// Releases text only up to the end of a character and, if it may be the beginning of a stop string,
// not before this is decided. All released pieces together are the complete text, which ends before
// the first stop string. The text is well-formed UTF-8: U+FFFD replaces bytes that no further token
// completes.
class TextStream {
 public:
  // `before`: the tokens before the first one. They decide whether the text begins with a space.
  // The tokenizer must outlive the stream.
  TextStream(const Tokenizer& tokenizer, std::span<const int32_t> before,
             std::vector<std::string> stops);

  // Adds a token of the vocabulary and returns the text that is released.
  std::string push(int32_t token);
  // Returns the rest of the text, after the last token.
  std::string finish();
  // Returns whether a stop string was found. The text is complete then.
  bool stopped() const { return stopped_; }

 private:
  std::string decode_from(size_t first) const;
  // Releases the text of the tokens before `end`. `text`: that from `context_` on, of which the
  // first `before` bytes have been released.
  std::string read_to(size_t end, size_t before, const std::string& text);
  std::string release(std::string text, bool is_end);

  const Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  std::vector<int32_t> tokens_;  // some tokens before the first one, then all others
  // Tokens before `read_` have been converted to text; those from `context_` on are decoded again,
  // because a token's text depends on the token before it.
  size_t context_ = 0;
  size_t read_ = 0;
  std::string held_;  // text that may begin a stop string
  bool stopped_ = false;
};

// Returns the text of `token` after the token `before` (-1: at the beginning); the empty text for
// control tokens. U+FFFD replaces parts of characters.
std::string token_text(const Tokenizer& tokenizer, int32_t before, int32_t token);

}  // namespace muster::trainer
