// tiktoken's rank files: one line per token with its bytes in base64 and its rank, which is its id.
// The word pattern and the special tokens after the ranks are not in the file: they belong to its
// encoding, which the SHA-256 of a published file identifies.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {

// The names of the known encodings, as --encoding takes them.
constexpr std::string_view kTiktokenEncodings[] = {
    "cl100k_base", "o200k_base", "p50k_base", "r50k_base", "gpt2", "llama3", "qwen"};

// A published file.
struct PublishedRanks {
  std::string_view sha256;  // of the file, in hexadecimal
  std::string_view encoding;
};
// OpenAI's files (tiktoken_ext/openai_public.py) and Llama 3's.
std::span<const PublishedRanks> published_ranks();

// Whether the first line is that of a rank file.
bool looks_like_tiktoken(std::string_view bytes);

// Loads the encoding that the file's hash identifies, or `encoding` (of kTiktokenEncodings) for a
// file that is not in `published`. Qwen's file is known by its number of ranks. Text that looks
// like a special token is encoded as text. InvalidArgument names the line, an unknown name, an
// unknown file without a name, or a published one with another name.
absl::StatusOr<std::unique_ptr<Tokenizer>> load_tiktoken(
    std::string_view bytes, std::string_view encoding,
    std::span<const PublishedRanks> published = published_ranks());

}  // namespace muster::trainer
