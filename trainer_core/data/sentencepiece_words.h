// Whether a SentencePiece model encodes the words of a text by themselves, so that the tokens of a word can be remembered.
//
// SentencePiece takes a sentence whole: it puts a blank in front, writes blanks as U+2581 and merges neighbours. Where no piece
// has U+2581 behind another character, no merge crosses from one word into the blank of the next, and "a b" is what "a" and "b"
// are, each with its own blank in front. That is so of Llama's models, and of most.
#pragma once

#include <string_view>

namespace muster::trainer {

// U+2581, which stands for a blank in pieces, and may stand in a text.
constexpr std::string_view kSentencePieceBlank = "\xE2\x96\x81";

// What a model says of its texts' words.
enum class WordIndependence {
  kNone,   // they are encoded together
  kAscii,  // where the characters on both sides of the blank are ASCII: the model normalises characters, by one of the library's rules
  kAll,
};

// `model` is a serialized ModelProto (sentencepiece_model.proto) that the library has read. kNone for all but byte-pair models:
// a unigram model's scores are rounded along the sentence, so that near ties may fall otherwise in a word alone.
WordIndependence word_independence(std::string_view model);

// Calls take(word) for the parts of `text` between blanks that can be left out, because the model puts one in front of each
// part; a run of blanks loses its first. Blanks at the beginning and the end stay, and those behind a U+2581, which some models
// take away at an end.
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
