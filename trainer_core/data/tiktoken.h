// tiktoken's rank files: one line per token with its bytes in base64 and its rank, which is its id.
// The word pattern and the special tokens after the ranks are not in the file; its name identifies
// them.
#pragma once

#include <memory>
#include <string_view>

#include <absl/status/statusor.h>

#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {

// Whether the first line is that of a rank file.
bool looks_like_tiktoken(std::string_view bytes);

// `name` is the file's name. If it contains cl100k, r50k or gpt2, the file has that encoding;
// otherwise it is Llama 3's, with its 256 special tokens. Text that looks like a special token is
// encoded as text. InvalidArgument names the line.
absl::StatusOr<std::unique_ptr<Tokenizer>> load_tiktoken(std::string_view bytes,
                                                         std::string_view name);

}  // namespace muster::trainer
