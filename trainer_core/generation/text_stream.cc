#include "trainer_core/generation/text_stream.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "trainer_core/data/utf8.h"

namespace muster::trainer {
namespace {

// The tokens that are decoded again as the context of the next ones.
constexpr size_t kContextTokens = 4;
// Tokens that are held while their text ends within a character. The longest character has four
// bytes, each a token; text that is not UTF-8 must not be held for longer.
constexpr size_t kHeldTokensMax = 4;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Returns whether `text` ends within a character. Tokenizers replace the bytes of incomplete
// characters by U+FFFD, or return them.
bool ends_within_character(std::string_view text) {
  if (text.ends_with(kReplacement)) return true;
  for (size_t bytes = 1; bytes <= std::min<size_t>(3, text.size()); ++bytes) {
    const auto lead = static_cast<unsigned char>(text[text.size() - bytes]);
    if ((lead & 0xC0U) == 0x80U) continue;
    const size_t length = lead >= 0xF0U ? 4 : lead >= 0xE0U ? 3 : lead >= 0xC0U ? 2 : 1;
    return length > bytes;
  }
  return false;
}

// Returns the number of bytes at the end of `text` that are the beginning of a stop string.
size_t possible_stop(std::string_view text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t bytes = std::min(stop.size() - 1, text.size()); bytes > longest; --bytes) {
      if (text.ends_with(std::string_view(stop).substr(0, bytes))) longest = bytes;
    }
  }
  return longest;
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const int32_t> before,
                       std::vector<std::string> stops)
    : tokenizer_(tokenizer), stops_(std::move(stops)) {
  std::erase(stops_, "");
  const auto context = before.last(std::min(before.size(), kContextTokens));
  // Ids outside the vocabulary of the tokenizer are padding and have no text.
  std::ranges::copy_if(context, std::back_inserter(tokens_),
                       [&](int32_t token) { return token < tokenizer.vocab_size(); });
  read_ = tokens_.size();
}

std::string TextStream::decode_from(size_t first) const {
  const auto text = tokenizer_.decode(std::span(tokens_).subspan(first));
  return text.ok() ? *text : std::string();
}

std::string TextStream::push(int32_t token) {
  if (stopped_) return "";
  const std::string before =
      *tokenizer_.decode(std::span(tokens_).subspan(context_, read_ - context_));
  tokens_.push_back(token);
  const std::string all = decode_from(context_);
  if (all.size() > before.size() && !ends_within_character(all))
    return read_to(tokens_.size(), before.size(), all);
  if (tokens_.size() - read_ < kHeldTokensMax) return "";
  // The later tokens may be the beginning of a character, the first of them is not.
  const size_t end = read_ + 1;
  const auto text = tokenizer_.decode(std::span(tokens_).subspan(context_, end - context_));
  return read_to(end, before.size(), text.value_or(""));
}

std::string TextStream::read_to(size_t end, size_t before, const std::string& text) {
  // Tokens without text stay in the context with the token before them.
  const bool has_text = text.size() > before;
  if (has_text) context_ = read_;
  read_ = end;
  return has_text ? release(repair_utf8(text.substr(before)), /*is_end=*/false) : "";
}

std::string TextStream::finish() {
  if (stopped_) return "";
  const std::string before =
      *tokenizer_.decode(std::span(tokens_).subspan(context_, read_ - context_));
  const std::string all = decode_from(context_);
  read_ = tokens_.size();
  return release(all.size() > before.size() ? repair_utf8(all.substr(before.size())) : "",
                 /*is_end=*/true);
}

std::string TextStream::release(std::string text, bool is_end) {
  text.insert(0, std::exchange(held_, ""));
  size_t end = text.size();
  for (const std::string& stop : stops_) {
    if (const size_t at = text.find(stop); at < end) {
      end = at;
      stopped_ = true;
    }
  }
  if (stopped_ || is_end) {
    text.resize(end);
    return text;
  }
  const size_t held = possible_stop(text, stops_);
  held_ = text.substr(text.size() - held);
  text.resize(text.size() - held);
  return text;
}

std::string token_text(const Tokenizer& tokenizer, int32_t before, int32_t token) {
  const int32_t ids = tokenizer.vocab_size();
  if (token >= ids) return "";
  if (before >= ids) before = token;
  const std::vector<int32_t> pair = before < 0 ? std::vector{token} : std::vector{before, token};
  const auto alone = tokenizer.decode(std::span(pair).first(pair.size() - 1));
  const auto both = tokenizer.decode(pair);
  if (!alone.ok() || !both.ok() || both->size() <= alone->size()) return "";
  return repair_utf8(both->substr(alone->size()));
}

}  // namespace muster::trainer
