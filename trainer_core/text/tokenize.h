// The pipeline of `muster tokenize`: reads files, divides them into documents, encodes each
// document into ids and an end-of-sequence id, and writes shards and index.json.
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

// The options of a run.
struct TokenizeOptions {
  std::vector<std::string> inputs;    // files and folders (input_files.h)
  std::optional<InputFormat> format;  // format of all inputs; nullopt: by their names
  std::string split;                  // split to read from folders; empty: see choose_split()
  std::string tokenizer_path;
  // Name of a tiktoken encoding (tiktoken.h). Empty: found by the file's hash.
  std::string encoding;
  std::string output_directory;  // created if needed; an earlier data set in it is replaced
  EncodeOptions encode;
  // Tokenize samples for fine-tuning (sft_sample.h): sets encode.sft.
  bool sft = false;
  bool dpo = false;  // the samples are pairs of answers (dpo_sample.h): sets encode.pairs
  bool sft_add_bos = false;
  std::string chat_template;       // a Jinja file; empty: the template beside the tokenizer
  std::string chat_template_name;  // the one to use if the tokenizer has several
  int32_t threads = 0;             // 0: all cores
  // Tokens per shard: a shard ends with the chunk that reaches this number.
  uint64_t shard_tokens = 64ULL << 20;
  bool restart = false;                     // discard the shards of an interrupted run
  const std::atomic<bool>* stop = nullptr;  // set to true to cancel
};

// The progress of a run, in bytes of the input files on disk.
struct TokenizeProgress {
  uint64_t done = 0;
  uint64_t total = 0;
  uint64_t from = 0;  // progress of the interrupted run that was resumed
};

// Receives the progress from time to time, on the thread that called tokenize_files().
using TokenizeProgressFn = std::function<void(const TokenizeProgress&)>;

// The account of one input file.
struct InputReport {
  std::string path;
  uint64_t bytes = 0;  // size of the file
  InputCounts read;
};

// The result of a run.
struct TokenizeReport {
  TokenIndex index;
  DocumentCounts counts;
  uint64_t input_bytes = 0;  // total size of the input files on disk
  size_t input_files = 0;
  size_t reused_shards = 0;         // shards of an interrupted run
  uint64_t reused_text_bytes = 0;   // bytes of text in these shards
  std::vector<InputReport> inputs;  // one per file, in the order in which they are read
  std::string chat_template;        // its place; empty: none was used
  std::string tokenizer;            // see Tokenizer::description()
  std::string tokenizer_file;
  // The fields of InputFiles with the same names.
  std::vector<IgnoredEntry> ignored;
  std::string split;
  std::map<std::string, size_t> left_out;
  std::vector<std::string> notes;
};

// Tokenizes all inputs. The bytes of the shards and of the index depend neither on the number of
// threads nor on interruptions: a run with the same options resumes after the last finished shard
// of a killed or failed run. An earlier data set in the folder remains unchanged until the new one
// is complete, and after any error. Errors:
//   InvalidArgument     There is no document, a bad document (encode.h), no valid tokenizer, or no
//                       end-of-sequence id.
//   DataLoss            An input file is damaged; the message has the offset.
//   FailedPrecondition  The folder has an interrupted run with other options or inputs.
//   ResourceExhausted, PermissionDenied   The output folder cannot be written to.
//   Cancelled           `stop` was set; the message has the progress.
absl::StatusOr<TokenizeReport> tokenize_files(const TokenizeOptions& options,
                                              const TokenizeProgressFn& progress = nullptr);

// Returns the identity of a run with these options: the input files and settings that determine the
// bytes of its shards. Reads the tokenizer and lists the files, but tokenizes nothing. Returns the
// errors of tokenize_files().
absl::StatusOr<RunIdentity> run_identity(const TokenizeOptions& options);

}  // namespace muster::trainer
