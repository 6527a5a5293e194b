#include "trainer_core/data/sentencepiece_words.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "trainer_core/data/protobuf_fields.h"

namespace muster::trainer {
namespace {

constexpr uint64_t kBpe = 2;  // TrainerSpec.ModelType
// The values of NormalizerSpec.name for the library's own rules. These rules replace no sequence in
// which a blank is adjacent to an ASCII character.
constexpr std::array<std::string_view, 4> kKnownRules = {"nmt_nfkc", "nfkc", "nmt_nfkc_cf",
                                                         "nfkc_cf"};

struct ModelFacts {
  bool is_bpe = false;
  bool blank_is_suffix = false;
  bool blank_in_front = true;
  bool blanks_are_escaped = true;
  bool has_rules = false;
  std::string_view rules;
  bool has_blank_piece = false;
  bool pieces_cross = false;  // a piece spans the end of one word and the beginning of the next
};

bool crosses(std::string_view piece) {
  while (piece.starts_with(kSentencePieceBlank)) piece.remove_prefix(kSentencePieceBlank.size());
  return piece.find(kSentencePieceBlank) != std::string_view::npos ||
         piece.find(' ') != std::string_view::npos;
}

// message ModelProto {
//   repeated SentencePiece pieces = 1; TrainerSpec trainer_spec = 2;
//   NormalizerSpec normalizer_spec = 3;
// }
template <class Take>
void for_each_field(std::string_view message, const Take& take) {
  ProtobufFields fields(message, message);
  for (ProtobufField field; fields.next(field);) take(field);
}

ModelFacts facts_of(std::string_view model) {
  ModelFacts facts;
  for_each_field(model, [&](const ProtobufField& part) {
    for_each_field(part.bytes, [&](const ProtobufField& field) {
      if (part.number == 1 && field.number == 1) {
        facts.has_blank_piece |= field.bytes == kSentencePieceBlank;
        facts.pieces_cross |= crosses(field.bytes);
      } else if (part.number == 2) {
        if (field.number == 3) facts.is_bpe = field.value == kBpe;
        if (field.number == 24) facts.blank_is_suffix = field.value != 0;
      } else if (part.number == 3) {
        if (field.number == 1) facts.rules = field.bytes;
        if (field.number == 2) facts.has_rules = !field.bytes.empty();
        if (field.number == 3) facts.blank_in_front = field.value != 0;
        if (field.number == 5) facts.blanks_are_escaped = field.value != 0;
      }
    });
  });
  return facts;
}

}  // namespace

WordIndependence word_independence(std::string_view model) {
  const ModelFacts facts = facts_of(model);
  // If no piece is the blank, a blank is an unknown symbol, and the library joins adjacent unknown
  // symbols.
  const bool independent = facts.is_bpe && !facts.blank_is_suffix && facts.blank_in_front &&
                           facts.blanks_are_escaped && facts.has_blank_piece && !facts.pieces_cross;
  if (!independent) return WordIndependence::kNone;
  if (!facts.has_rules) return WordIndependence::kAll;
  return std::ranges::find(kKnownRules, facts.rules) != kKnownRules.end() ? WordIndependence::kAscii
                                                                          : WordIndependence::kNone;
}

}  // namespace muster::trainer
