// The token that a model expects before a text.
#pragma once

#include <cstdint>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {

struct TextStart {
  // The token before a text that would otherwise have no token before its first one; -1: none.
  int32_t id = -1;
  bool always = false;  // whether each text begins with this token
};

// Returns the start of the texts of the model with the training `config`:
// - A model that was trained on shards has the end-of-sequence token between documents, and
//   documents begin with their own first token (data/samples.h). Samples that were tokenized with
//   --bos begin with that token (TokenIndex::begin_id).
// - Other models, such as those of muster convert, have the start that transformers adds. It is
//   defined by the class, bos_token and add_bos_token of the tokenizer_config.json beside the
//   tokenizer, or by the post-processor of tokenizer.json. A bos_token that is missing there is in
//   special_tokens_map.json, or is the default of the class. A SentencePiece model or a tiktoken
//   file without these files has its beginning-of-sequence token. Without such a token, the
//   end-of-sequence token stands before texts that have no other.
// Returns InvalidArgument with the path if a file is damaged, or if it begins texts with an unknown
// token.
absl::StatusOr<TextStart> expected_text_start(const TrainConfig& config,
                                              const Tokenizer& tokenizer);

}  // namespace muster::trainer
