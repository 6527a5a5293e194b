// The options of the commands for texts and tokenizers. The program muster-text implements these
// commands, and `muster` executes it: SentencePiece and gRPC cannot share a process if the
// distribution's libsentencepiece contains its own copy of protobuf (Debian 12).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"

namespace muster::cli {

// The options of `muster tokenize`.
struct TokenizeArguments {
  std::vector<std::string> text;
  std::string tokenizer;
  std::string encoding;  // name of a tiktoken encoding; empty: found by the file's hash
  std::string out;
  std::string format;  // format of the text; empty: determined by the file names
  std::string split;   // split of a data set; empty: "train", or the only split
  // unit of text that becomes a document: "lines", "paragraphs" or "files"
  std::string documents = "lines";
  std::string field = "text";
  // treatment of documents that are not UTF-8: "repair", "skip" or "stop"
  std::string bad_documents = "repair";
  bool no_eos = false;
  bool sft = false;  // samples for supervised fine-tuning
  bool dpo = false;  // pairs of answers for preference tuning
  bool bos = false;
  std::string chat_template;       // a Jinja file; empty: the template beside the tokenizer
  std::string chat_template_name;  // the one to use if the tokenizer has several
  bool restart = false;
  int32_t threads = 0;
  uint64_t shard_tokens = 64ULL << 20;
  bool json = false;
};

// The options of the internal command token-cache, for jobs that train on text.
struct TokenCacheArguments {
  std::string text;  // a folder, a file or a pattern
  std::string dataset;
  bool is_dataset_stated = false;
  std::string split;
  std::string field = "text";
  std::string tokenizer;
  std::string encoding;
  bool only_find = false;
};

// The options of `muster train-tokenizer`.
struct TrainTokenizerArguments {
  std::string text;
  std::string out;
  int32_t vocab_size = 32'000;
  bool fewer_ok = false;
  int32_t threads = 0;
  bool json = false;
};

// The options of `muster convert`.
struct ConvertArguments {
  std::string from;
  std::string to;
  std::string base;
  std::string target;  // "hf", "muster", "peft", or empty
  std::string dtype;   // "float32", "bfloat16", "float16", or empty
  std::string shard_size = "5GB";
  std::string tokenizer;
  std::vector<std::string> expected;  // trainer_core/convert/expected_model.h
  bool allow_unused = false;
  bool json = false;
};

// Each function declares a command with its options and help, and returns it; the caller sets the
// action.
CLI::App& describe_tokenize(CLI::App& app, TokenizeArguments& arguments);
CLI::App& describe_token_cache(CLI::App& app, TokenCacheArguments& arguments);
CLI::App& describe_train_tokenizer(CLI::App& app, TrainTokenizerArguments& arguments);
CLI::App& describe_convert(CLI::App& app, ConvertArguments& arguments);

// Execute a command and return its exit code. Implemented in muster-text.
int tokenize(const TokenizeArguments& arguments);
int token_cache(const TokenCacheArguments& arguments);
int train_tokenizer(const TrainTokenizerArguments& arguments);
int convert(const ConvertArguments& arguments);

}  // namespace muster::cli
