// The tokenizer files beside a model's weights, with which other programs encode text: found,
// copied, and, if there is only a SentencePiece model, described for transformers.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {

constexpr char kSentencePieceFile[] = "tokenizer.model";
constexpr char kHuggingFaceTokenizerFile[] = "tokenizer.json";

struct TokenizerFiles {
  std::string folder;              // source of the copies
  std::vector<std::string> names;  // files in `folder`
  // The path of a SentencePiece model to copy as tokenizer.model; may be empty.
  std::string sentence_piece;
  nlohmann::json token_ids = nlohmann::json::object();  // the known ones of kTokenIdFields
  nlohmann::json tokenizer_config;  // to write as tokenizer_config.json; null: none
  std::vector<std::string> notes;
};

// Finds the files of a source: `given` unless empty, otherwise those in its folder, otherwise those
// that its run's config names. InvalidArgument if `given` is not a SentencePiece model, or has more
// pieces than the model has tokens, or if a file is a pointer of Git LFS; NotFound if a file is a
// symbolic link whose target is missing.
absl::StatusOr<TokenizerFiles> find_tokenizer_files(const ParameterDescription& source,
                                                    const std::string& given);

// Writes the files into an existing folder.
absl::Status write_tokenizer_files(const TokenizerFiles& files, const std::string& folder);

}  // namespace muster::trainer
