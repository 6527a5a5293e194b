// The tokenize pipeline: text file → documents → ids with an end-of-sequence id each → shards and
// index.json.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/data/token_index.h"
#include "trainer_core/data/tokenizer.h"

namespace muster::trainer {

struct TokenizeOptions {
  enum class Documents {
    kLines,       // one per line; blank lines are skipped
    kParagraphs,  // separated by blank lines
  };

  std::string input;             // UTF-8 text file
  std::string tokenizer_path;    // SentencePiece model
  std::string output_directory;  // made if it is not there; an earlier data set is replaced
  Documents documents = Documents::kLines;
  bool add_eos = true;
  int32_t threads = 0;                  // 0: all cores
  uint64_t shard_tokens = 64ULL << 20;  // a shard ends with the first chunk that reaches this
};

// Tokenises the whole file; the result does not depend on the number of threads. Progress is in
// bytes of input. InvalidArgument: an empty or binary input (NUL bytes or much invalid UTF-8, with
// the offset), a tokenizer that is none, no end-of-sequence id. ResourceExhausted /
// PermissionDenied: the output folder. On an error, and at every moment before the new data set is whole, an earlier one in
// the folder stays as it was.
absl::StatusOr<TokenIndex> tokenize_file(const TokenizeOptions& options,
                                         const ProgressFn& progress = nullptr);

}  // namespace muster::trainer
