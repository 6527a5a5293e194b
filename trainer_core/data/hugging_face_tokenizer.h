// Hugging Face's tokenizer.json with byte-level BPE: GPT-2, Llama 3 and similar ones.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {

// Produces the ids of `tokenizers` with add_special_tokens=False. `folder` may hold a
// tokenizer_config.json that names the end-of-sequence token; without it, well-known names are
// tried. InvalidArgument names the part of the file that is damaged or cannot be followed exactly:
// a model other than BPE, byte fallback, a normalizer, an unknown pre-tokenizer.
absl::StatusOr<std::unique_ptr<Tokenizer>> load_hugging_face(std::string_view json,
                                                             const std::string& folder);

}  // namespace muster::trainer
