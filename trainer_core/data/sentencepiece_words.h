// Determines whether a SentencePiece model encodes the words of a text independently, so that a
// word's tokens can be cached.
//
// SentencePiece encodes a sentence as a whole: it adds a blank in front, replaces blanks by U+2581
// and merges adjacent symbols. If no piece has U+2581 after another character, no merge joins the
// end of a word with the blank before the next one. Then the tokens of "a b" are those of "a"
// followed by those of "b", because the library adds a blank in front of each. This holds for
// Llama's models and for most others.
#pragma once

#include <string_view>

namespace muster::trainer {

// U+2581 in UTF-8. It represents a blank in pieces, but can also occur in a text.
constexpr std::string_view kSentencePieceBlank = "\xE2\x96\x81";

// The extent to which a model encodes words independently.
enum class WordIndependence {
  kNone,  // never
  // Only if the characters on both sides of the blank are ASCII, because the model normalizes other
  // characters by one of the library's rules.
  kAscii,
  kAll,  // at every blank
};

// Returns the independence of a model. `model` is a serialized ModelProto
// (sentencepiece_model.proto) that the library has parsed. Returns kNone for all models except
// byte-pair models. A unigram model adds up scores along the sentence and rounds each sum, so a
// word alone can get other tokens if two divisions have almost equal scores.
WordIndependence word_independence(std::string_view model);

// Divides `text` at blanks and calls take(word) for each part. The blank at a division is in no
// part, because the model adds a blank in front of each part; if several blanks are adjacent, the
// part after the division begins with the rest of them. Blanks at the beginning and the end of the
// text remain, and so do blanks after a U+2581, because some models strip a U+2581 at the end of a
// text.
template <class Take>
void for_each_word(WordIndependence independence, std::string_view text, const Take& take) {
  const auto is_plain = [](char c) { return c > ' ' && c <= '~'; };
  size_t begin = 0;
  for (size_t at = text.find(' ', 1); at < text.size(); at = text.find(' ', at)) {
    const size_t next = text.find_first_not_of(' ', at);
    if (next == std::string_view::npos) break;
    const bool cut = independence == WordIndependence::kAll
                         ? text[at - 1] != ' ' && !text.substr(0, at).ends_with(kSentencePieceBlank)
                         : is_plain(text[at - 1]) && is_plain(text[next]);
    if (cut) {
      take(text.substr(begin, at - begin));
      begin = at + 1;
    }
    at = next;
  }
  take(text.substr(begin));
}

}  // namespace muster::trainer
