// The tokenize pipeline: files → documents → ids with an end-of-sequence id each → shards and index.json.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/data/token_index.h"
#include "trainer_core/text/encode.h"
#include "trainer_core/text/input_files.h"

namespace muster::trainer {

struct TokenizeOptions {
  std::vector<std::string> inputs;    // files and folders (input_files.h)
  std::optional<InputFormat> format;  // of all of them; none: by their names
  std::string tokenizer_path;
  std::string output_directory;  // made if it is not there; an earlier data set is replaced
  EncodeOptions encode;
  int32_t threads = 0;                      // 0: all cores
  uint64_t shard_tokens = 64ULL << 20;      // a shard ends with the first chunk that reaches this
  bool restart = false;                     // forget what an interrupted run has finished
  const std::atomic<bool>* stop = nullptr;  // becomes true when a person has lost patience
};

struct TokenizeProgress {
  uint64_t done = 0;  // bytes of the input files
  uint64_t total = 0;
  uint64_t from = 0;  // where an interrupted run had come to
};

// Called now and then from the thread that called tokenize_files().
using TokenizeProgressFn = std::function<void(const TokenizeProgress&)>;

struct TokenizeReport {
  TokenIndex index;
  DocumentCounts counts;
  uint64_t input_bytes = 0;  // of the files
  size_t input_files = 0;
  size_t kept_shards = 0;  // an interrupted run had finished them
  uint64_t kept_text_bytes = 0;
  std::vector<std::string> ignored;  // files of unknown formats in the folders
};

// Tokenises everything; shards and index do not depend on the number of threads, nor on interruptions: a run that was killed, or
// failed, goes on behind its last finished shard when it is repeated, and makes the same bytes.
// InvalidArgument: no document, a bad one (encode.h), a tokenizer that is none, no end-of-sequence id. DataLoss: a damaged input
// file, with the offset. FailedPrecondition: an interrupted run that was another one. ResourceExhausted / PermissionDenied: the
// output folder. Cancelled after `stop`: the message says how far it was. On an error, and at every moment before the new data set is whole, an earlier one in the folder stays as it was.
absl::StatusOr<TokenizeReport> tokenize_files(const TokenizeOptions& options,
                                              const TokenizeProgressFn& progress = nullptr);

}  // namespace muster::trainer
