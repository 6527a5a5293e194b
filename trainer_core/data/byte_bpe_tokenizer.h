// A byte-level BPE tokenizer. It first finds added tokens, normalizes the text between them, splits
// it into words by one or more patterns in sequence, and merges the bytes of each word.
// hugging_face_tokenizer.h and tiktoken.h read its parts from files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/data/added_tokens.h"
#include "trainer_core/data/bpe.h"
#include "trainer_core/data/split_pattern.h"
#include "trainer_core/data/tokenizer.h"
#include "trainer_core/data/unicode_form.h"

namespace muster::trainer {

// The parts of a byte-level BPE tokenizer.
struct ByteBpeParts {
  std::string_view type;            // Tokenizer::type()
  std::vector<std::string> tokens;  // the bytes of each id; empty: the id is not used
  std::vector<bool> is_special;     // for each id: the token has no text
  BpeMerges merges;                 // requires an id for each byte
  // The first pattern splits the text, each later one the pieces of the previous one.
  std::vector<std::shared_ptr<const SplitPattern>> patterns;
  AddedTokens raw;                  // added tokens that are matched in the original text
  std::vector<UnicodeForm> forms;   // applied to text between raw added tokens, in this order
  AddedTokens normalized;           // added tokens that are matched in the normalized text
  bool add_prefix_space = false;    // puts a space before each piece that does not begin with one
  int32_t eos_id = -1;              // -1: none
  int32_t bos_id = -1;              // see Tokenizer::bos_id()
  std::string encoding;             // see Tokenizer::encoding()
  bool encoding_is_stated = false;  // by the caller; false: known by the file's hash
};

// Returns the tokenizer that has these parts.
std::unique_ptr<Tokenizer> make_byte_bpe_tokenizer(ByteBpeParts parts);

}  // namespace muster::trainer
