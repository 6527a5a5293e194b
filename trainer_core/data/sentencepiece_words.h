// Determines whether a SentencePiece model encodes the words of a text independently, so that a
// word's tokens can be cached.
//
// SentencePiece encodes a sentence as a whole: it adds a blank in front, writes blanks as U+2581
// and merges adjacent symbols. If no piece has U+2581 after another character, no merge crosses
// from one word into the blank of the next, and "a b" is encoded as "a" and "b", each with its own
// blank in front. This holds for Llama's models, and for most others.
#pragma once

#include <string_view>

namespace muster::trainer {

// U+2581, which stands for a blank in pieces, and may occur in a text.
constexpr std::string_view kSentencePieceBlank = "\xE2\x96\x81";

// How far a model encodes words independently.
enum class WordIndependence {
  kNone,  // words are encoded together
  // Only where the characters on both sides of the blank are ASCII: the model normalizes characters
  // by one of the library's rules.
  kAscii,
  kAll,
};

// `model` is a serialized ModelProto (sentencepiece_model.proto) that the library has parsed.
// Returns kNone for all but byte-pair models: a unigram model's scores are rounded along the
// sentence, so that near ties may resolve differently for a single word.
WordIndependence word_independence(std::string_view model);

// Calls take(word) for the parts of `text` between blanks that can be left out because the model
// adds one in front of each part; a run of blanks loses its first. Blanks at the beginning and the
// end remain, as do blanks after a U+2581, which some models strip at an end.
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
