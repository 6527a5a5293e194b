// Token shards that are made when a text is first trained on, and found again afterwards.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/text/tokenize.h"

namespace muster::trainer {

// The cache's folder beside the text. Hidden, so that a listing of the corpus leaves it out.
constexpr char kTokenCacheFolder[] = ".muster-tokens";

struct TokenCacheOptions {
  // `output_directory` is ignored. Inputs may be patterns ("c4/*.parquet").
  TokenizeOptions tokenize;
  // Folders of caches, in order of preference. The first one with these tokens is used; if there is
  // none, the first one that is writable.
  std::vector<std::string> roots;
  bool only_find = false;  // do not tokenize
};

struct CachedTokens {
  std::string folder;   // of the shards
  bool is_new = false;  // tokenized by this call
  TokenizeReport report;
};

// Returns the folder of shards for these inputs, and tokenizes them if no cache has them. The
// folder's name depends on the input files (by name, size and time of the last change), the
// tokenizer and the settings, so that a changed corpus never meets old tokens. A call that finds
// another process at work waits for it, and calls `on_wait` once with the folder; of processes that
// start together one tokenizes. An interrupted run resumes. An input that is a folder of token
// shards is returned as it is. Errors: as tokenize_files(), and NotFound with `only_find`.
absl::StatusOr<CachedTokens> cached_tokens(
    const TokenCacheOptions& options, const TokenizeProgressFn& progress = nullptr,
    const std::function<void(const std::string&)>& on_wait = nullptr);

// Returns the files and folders that match a pattern of the shell, in natural order; a path without
// `*`, `?` and `[` is returned as it is. NotFound if nothing matches.
absl::StatusOr<std::vector<std::string>> expand_pattern(const std::string& pattern);

// Returns the folder of the TFDS data set `name` ("c4/en:3.0.1", "the_pile") in the data folder
// `root`: of several versions the newest. If `name` is not stated by the user, a single data set of
// another name, or `root` itself without any data set, will do. NotFound names the data sets that
// are there.
absl::StatusOr<std::string> find_tfds_folder(const std::string& root, const std::string& name,
                                             bool is_stated);

}  // namespace muster::trainer
