// Loads a tokenizer from a rank file of tiktoken: each line has a token's bytes in base64 and its
// rank, which is also its id. The file lacks the word pattern and the special tokens, whose ids
// follow the ranks; the file's name determines both.
#pragma once

#include <memory>
#include <string_view>

#include <absl/status/statusor.h>

#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {

// Returns whether the first line is that of a rank file.
bool looks_like_tiktoken(std::string_view bytes);

// Loads a rank file. `name` is the file's name: if it contains cl100k, r50k or gpt2, the file has
// this encoding; otherwise it has that of Llama 3, with 256 special tokens. Text that looks like a
// special token is encoded as ordinary text. Returns InvalidArgument with the wrong line.
absl::StatusOr<std::unique_ptr<Tokenizer>> load_tiktoken(std::string_view bytes,
                                                         std::string_view name);

}  // namespace muster::trainer
