// Copies the tokenizer files of a model, with which other programs encode text. If there is only a
// SentencePiece model, also writes a tokenizer_config.json for the library `transformers`.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {

constexpr char kSentencePieceFile[] = "tokenizer.model";
constexpr char kHuggingFaceTokenizerFile[] = "tokenizer.json";

// The files to write.
struct TokenizerFiles {
  std::string folder;              // the folder from which `names` are copied
  std::vector<std::string> names;  // files in `folder`
  // The path of a SentencePiece model to copy as tokenizer.model; empty: none.
  std::string sentence_piece;
  // The fields of kTokenIdFields that are known.
  nlohmann::json token_ids = nlohmann::json::object();
  nlohmann::json tokenizer_config;  // contents of tokenizer_config.json; null: do not write it
  std::vector<std::string> notes;
};

// Finds the tokenizer files for a source of parameters: `given` (the path of a SentencePiece model)
// if it is not empty, otherwise the files in the folder of the source, otherwise the tokenizer_path
// of its training config. Returns InvalidArgument if `given` is not a SentencePiece model, or has
// more pieces than the model has tokens, or if a file is a pointer of Git LFS; NotFound if a file
// is a symbolic link without a target.
absl::StatusOr<TokenizerFiles> find_tokenizer_files(const ParameterDescription& source,
                                                    const std::string& given);

// Writes the files into an existing folder.
absl::Status write_tokenizer_files(const TokenizerFiles& files, const std::string& folder);

}  // namespace muster::trainer
