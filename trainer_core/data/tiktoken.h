// Loads a tokenizer from a rank file of tiktoken: each line has a token's bytes in base64 and its
// rank, which is also its id. The file lacks the word pattern and the special tokens, whose ids
// follow the ranks: they belong to its encoding, which the SHA-256 of a published file identifies.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {

// The names of the known encodings, as --encoding accepts them.
constexpr std::string_view kTiktokenEncodings[] = {
    "cl100k_base", "o200k_base", "p50k_base", "r50k_base", "gpt2", "llama3", "qwen"};

// A published file.
struct PublishedRanks {
  std::string_view sha256;  // SHA-256 of the file, in hexadecimal
  std::string_view encoding;
};
// Returns OpenAI's files (tiktoken_ext/openai_public.py) and Llama 3's.
std::span<const PublishedRanks> published_ranks();

// Returns whether the first line is that of a rank file.
bool looks_like_tiktoken(std::string_view bytes);

// Loads a rank file with the encoding that its hash identifies. A file that is not in `published`
// has `encoding`, one of kTiktokenEncodings; Qwen's file is identified by its number of ranks. Text
// that equals a special token is encoded as ordinary text. Returns InvalidArgument with the
// wrong line, for an unknown encoding, for an unknown file without an encoding, and for a published
// file with another encoding.
absl::StatusOr<std::unique_ptr<Tokenizer>> load_tiktoken(
    std::string_view bytes, std::string_view encoding,
    std::span<const PublishedRanks> published = published_ranks());

}  // namespace muster::trainer
