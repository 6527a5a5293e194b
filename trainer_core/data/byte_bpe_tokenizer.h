// Byte-level BPE as a Tokenizer. Added tokens are found first; the text between them is split into
// words by one or more patterns in sequence, and each word's bytes are merged. The parts are read
// from files by hugging_face_tokenizer.h and tiktoken.h.
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

namespace muster::trainer {

struct ByteBpeParts {
  std::string_view type;            // Tokenizer::type()
  std::vector<std::string> tokens;  // bytes by id; empty for an unused id
  std::vector<bool> is_special;     // by id: tokens without text
  BpeMerges merges;                 // has an id for each byte
  // Each pattern splits the pieces of the previous one.
  std::vector<std::shared_ptr<const SplitPattern>> patterns;
  AddedTokens raw;                // found first
  AddedTokens normalized;         // found next, in the text between the raw ones
  bool add_prefix_space = false;  // adds a space before each piece that has none
  int32_t eos_id = -1;
  std::string encoding;         // Tokenizer::encoding()
  std::string encoding_origin;  // how it is known
  std::vector<std::string> notes;
};

std::unique_ptr<Tokenizer> make_byte_bpe_tokenizer(ByteBpeParts parts);

}  // namespace muster::trainer
