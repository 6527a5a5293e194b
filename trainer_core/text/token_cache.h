// A cache of token shards. The first job that trains on a text tokenizes it; later jobs find the
// shards in the cache.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/text/tokenize.h"

namespace muster::trainer {

// The name of a cache's folder next to the text. It begins with a dot, so that find_input_files()
// does not list it as a part of the corpus.
constexpr char kTokenCacheFolder[] = ".muster-tokens";

// A request for token shards.
struct TokenCacheOptions {
  // `output_directory` is ignored. Inputs may be patterns ("c4/*.parquet").
  TokenizeOptions tokenize;
  // The folders of caches, in order of preference. The first one that has these tokens is used. If
  // none has them, they are written to the first writable one.
  std::vector<std::string> roots;
  bool only_find = false;  // return NotFound instead of tokenizing
};

// The result of cached_tokens().
struct CachedTokens {
  std::string folder;   // folder of the shards
  bool is_new = false;  // tokenized by this call
  TokenizeReport report;
};

// Returns the folder with the token shards of the inputs; tokenizes the inputs if no cache has
// them. The name of the folder depends on the input files (their names, sizes and times of the last
// change), the tokenizer and the settings, so the tokens of an earlier state of the corpus are
// never used. Of several processes that start together, one tokenizes; the others call `on_wait`
// once with the folder and block until it is done. An interrupted tokenization is resumed. An input
// that is itself a folder of token shards is returned as it is. Returns the errors of
// tokenize_files(), and NotFound with `only_find`.
absl::StatusOr<CachedTokens> cached_tokens(
    const TokenCacheOptions& options, const TokenizeProgressFn& progress = nullptr,
    const std::function<void(const std::string&)>& on_wait = nullptr);

// Returns the files and folders that match a shell pattern, in natural order. A path without `*`,
// `?` and `[` is returned as it is. Returns NotFound if nothing matches.
absl::StatusOr<std::vector<std::string>> expand_pattern(const std::string& pattern);

// Returns the folder of the TFDS data set `name` ("c4/en:3.0.1", "the_pile") below the folder
// `root`; of several versions, the newest. If the user has not stated `name` (is_stated is false)
// and there is no such data set, returns the only data set below `root`, or `root` if there is no
// data set. Returns NotFound with the data sets that exist.
absl::StatusOr<std::string> find_tfds_folder(const std::string& root, const std::string& name,
                                             bool is_stated);

}  // namespace muster::trainer
