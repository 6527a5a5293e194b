// The tokenize pipeline: files → documents → ids, each document with an end-of-sequence id → shards
// and index.json.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/data/token_index.h"
#include "trainer_core/text/encode.h"
#include "trainer_core/text/input_files.h"
#include "trainer_core/text/journal.h"

namespace muster::trainer {

struct TokenizeOptions {
  std::vector<std::string> inputs;    // files and folders (input_files.h)
  std::optional<InputFormat> format;  // of all inputs; nullopt: by their names
  std::string split;                  // of the folders (splits.h); empty: train, or the only one
  std::string tokenizer_path;
  std::string encoding;          // of a tiktoken file (tiktoken.h); empty: by its hash
  std::string output_directory;  // created if needed; an earlier data set in it is replaced
  EncodeOptions encode;
  int32_t threads = 0;                      // 0: all cores
  uint64_t shard_tokens = 64ULL << 20;      // a shard ends with the first chunk that reaches this
  bool restart = false;                     // discard what an interrupted run has finished
  const std::atomic<bool>* stop = nullptr;  // set to true to cancel
};

struct TokenizeProgress {
  uint64_t done = 0;  // bytes of the input files
  uint64_t total = 0;
  uint64_t from = 0;  // the progress of the interrupted run
};

// Called from time to time on the thread that called tokenize_files().
using TokenizeProgressFn = std::function<void(const TokenizeProgress&)>;

// The account of one input file.
struct InputReport {
  std::string path;
  uint64_t bytes = 0;  // of the file
  InputCounts read;
};

struct TokenizeReport {
  TokenIndex index;
  DocumentCounts counts;
  uint64_t input_bytes = 0;  // of the files
  size_t input_files = 0;
  size_t reused_shards = 0;  // finished by an interrupted run
  uint64_t reused_text_bytes = 0;
  std::vector<InputReport> inputs;  // one per file, in the order in which they are read
  std::string tokenizer;            // Tokenizer::description()
  std::string tokenizer_file;
  std::vector<IgnoredEntry> ignored;  // entries of the folders that are not read
  std::string split;                  // as InputFiles has them
  std::map<std::string, size_t> left_out;
  std::vector<std::string> notes;
};

// Tokenizes everything. Shards and index do not depend on the number of threads or on
// interruptions: a repeated run resumes after the last finished shard of a killed or failed one,
// and produces the same bytes. Until the new data set is complete, and on any error, an earlier one
// in the folder does not change. Errors:
//   InvalidArgument     no document, a bad one (encode.h), not a tokenizer, no end-of-sequence id
//   DataLoss            a damaged input file, with the offset
//   FailedPrecondition  the interrupted run in the folder is a different one
//   ResourceExhausted, PermissionDenied   the output folder
//   Cancelled           after `stop`; the message has the progress
absl::StatusOr<TokenizeReport> tokenize_files(const TokenizeOptions& options,
                                              const TokenizeProgressFn& progress = nullptr);

// Returns what determines the shards that tokenize_files() would make: the input files and the
// settings. Reads the tokenizer and lists the files. Errors: as tokenize_files().
absl::StatusOr<RunIdentity> run_identity(const TokenizeOptions& options);

}  // namespace muster::trainer
