// muster-text token-cache, for `muster run` and its like: finds or makes the shards of a text.
// Prints one JSON object to stdout, errors included; progress and notes go to stderr.
#include "trainer_core/text/token_cache.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

#include "cli/terminal/terminal.h"
#include "cli/text/store_files.h"
#include "cli/text/text_commands.h"
#include "cli/text/text_progress.h"
#include "cli/text/text_stop.h"
#include "common/files/user_cache.h"
#include "common/text/with_commas.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

// The folder that holds the text: `path` itself, or the one of a file or pattern.
std::string folder_of(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return path;
  fs::path folder = fs::path(path).parent_path();
  while (folder.string().find_first_of("*?[") != std::string::npos) folder = folder.parent_path();
  return folder.empty() ? "." : folder.string();
}

// $MUSTER_TOKEN_CACHE, or beside the text, or in the user's cache folder.
std::vector<std::string> cache_roots(const std::string& text) {
  if (const char* chosen = std::getenv("MUSTER_TOKEN_CACHE"); chosen != nullptr && *chosen != 0)
    return {chosen};
  std::vector<std::string> roots = {absl::StrCat(folder_of(text), "/", trainer::kTokenCacheFolder)};
  if (const std::string user = user_cache_folder(); !user.empty())
    roots.push_back(user + "/tokens");
  return roots;
}

// `tokenizer` is the local copy of arguments.tokenizer.
trainer::TokenCacheOptions options_of(const TokenCacheArguments& arguments, const std::string& text,
                                      const std::string& tokenizer) {
  trainer::TokenCacheOptions options;
  options.tokenize.inputs = {text};
  options.tokenize.split = arguments.split;
  options.tokenize.tokenizer_path = tokenizer;
  options.tokenize.encoding = arguments.encoding;
  options.tokenize.encode.read.field = arguments.field;
  options.tokenize.stop = &stop_on_signal();
  options.roots = cache_roots(text);
  options.only_find = arguments.only_find;
  return options;
}

// Warns of documents of a kind with the place of the first.
void warn_of(uint64_t count, const char* what, const std::vector<std::string>& examples) {
  if (count == 0) return;
  warn(absl::StrCat(
      count, count == 1 ? " document " : " documents ", what,
      examples.empty() ? "" : absl::StrCat(", the first is ", shown(examples.front()))));
}

void print_summary(Output& output, const std::string& text, const trainer::CachedTokens& tokens,
                   double seconds) {
  const trainer::TokenizeReport& report = tokens.report;
  output.write(absl::StrFormat("tokenised %s%s: %s documents, %s tokens in %s, %s\n", shown(text),
                               report.split.empty() ? "" : absl::StrCat(", split ", report.split),
                               with_commas(static_cast<int64_t>(report.index.documents)),
                               with_commas(static_cast<int64_t>(report.index.tokens)),
                               format_duration(seconds), shown(tokens.folder)));
  for (const std::string& note : report.notes) warn(note);
  const trainer::DocumentCounts& counts = report.counts;
  warn_of(counts.repaired, "repaired", counts.repaired_examples);
  warn_of(counts.nuls, "with U+FFFD for NUL", counts.nuls_examples);
  warn_of(counts.cut, "cut at the longest document", counts.cut_examples);
  warn_of(counts.empty, "without text left out", counts.empty_examples);
  // Hidden entries include the cache itself.
  std::vector<std::string> ignored;
  for (const trainer::IgnoredEntry& entry : report.ignored) {
    if (entry.reason != "hidden" && entry.reason != "metadata of TFDS")
      ignored.push_back(absl::StrCat(entry.path, " (", entry.reason, ")"));
  }
  if (ignored.empty()) return;
  warn(absl::StrCat(ignored.size(), ignored.size() == 1 ? " entry" : " entries",
                    " of the folder not read, the first is ", shown(ignored.front())));
}

absl::StatusOr<trainer::CachedTokens> tokens_of(const TokenCacheArguments& arguments) {
  std::string text = arguments.text;
  if (!arguments.dataset.empty()) {
    auto found = trainer::find_tfds_folder(text, arguments.dataset, arguments.is_dataset_stated);
    if (!found.ok()) return found.status();
    text = *std::move(found);
  }
  const auto tokenizer = local_input(arguments.tokenizer, stop_on_signal());
  if (!tokenizer.ok()) {
    return absl::Status(tokenizer.status().code(),
                        absl::StrCat("tokenizer_path: ", tokenizer.status().message()));
  }
  const Instant start = monotonic_now();
  Output output(STDERR_FILENO);
  ProgressBar bar(output, "tokenize", start);
  auto tokens = trainer::cached_tokens(
      options_of(arguments, text, *tokenizer),
      [&](const trainer::TokenizeProgress& progress) {
        const Instant now = monotonic_now();
        bar.update(reading_progress(progress.done, progress.total, start, now, progress.from), now);
      },
      [&](const std::string& folder) {
        output.write(absl::StrCat("another process tokenises this text into ", shown(folder),
                                  "; waiting for it\n"));
      });
  bar.hide();
  if (tokens.ok() && tokens->is_new)
    print_summary(output, text, *tokens, to_seconds(monotonic_now() - start));
  return tokens;
}

}  // namespace

int token_cache(const TokenCacheArguments& arguments) {
  const auto tokens = tokens_of(arguments);
  nlohmann::json result;
  if (tokens.ok()) {
    result = {{"folder", tokens->folder}, {"is_new", tokens->is_new}};
  } else {
    result = {{"code", static_cast<int>(tokens.status().code())},
              {"error", std::string(tokens.status().message())}};
  }
  return print_result(result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace muster::cli
