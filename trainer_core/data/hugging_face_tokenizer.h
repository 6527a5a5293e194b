// Loads a tokenizer from Hugging Face's tokenizer.json with byte-level BPE: GPT-2, Llama 3 and
// similar ones.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {

// Returns a tokenizer that produces the same ids as Hugging Face's library `tokenizers` with
// add_special_tokens=False. The end-of-sequence token is read from a tokenizer_config.json in
// `folder`; without this file, well-known names are tried. Returns InvalidArgument with the part of
// the file that is damaged or that this tokenizer cannot reproduce exactly: a model other than BPE,
// byte fallback, a normalizer, or an unknown pre-tokenizer.
absl::StatusOr<std::unique_ptr<Tokenizer>> load_hugging_face(std::string_view json,
                                                             const std::string& folder);

}  // namespace muster::trainer
