#include "trainer_core/text/token_cache.h"

#include <fcntl.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>

#include "common/files/errno_status.h"
#include "common/files/file_lock.h"
#include "common/random/fnv.h"
#include "common/text/natural_order.h"
#include "trainer_core/base/first_names.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

constexpr auto kLockPeriod = std::chrono::milliseconds(200);
// The maximum number of names in a sentence.
constexpr size_t kNamesListed = 6;

bool has_tokens(const std::string& folder) { return read_token_index(folder).ok(); }

// Returns whether a folder has token shards. A damaged index is reported later, when the shards are
// read.
bool is_token_folder(const std::string& folder) {
  std::error_code error;
  return fs::exists(absl::StrCat(folder, "/", kTokenIndexFile), error);
}

// Returns "train-0123456789abcdef".
std::string cache_name(const RunIdentity& run, const std::string& split) {
  std::string text;
  for (const auto& [name, value] : run.settings) absl::StrAppend(&text, name, "\n", value, "\n");
  for (const InputFile& file : run.inputs) {
    absl::StrAppend(&text, file.path, "\n", static_cast<int>(file.format), "\n", file.bytes, "\n",
                    file.modified_ns, "\n");
  }
  return absl::StrFormat("%s-%016x", split.empty() ? "text" : split, fnv1a(text));
}

bool is_writable_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  return !error && access(folder.c_str(), W_OK) == 0;
}

absl::StatusOr<std::string> choose_root(const std::vector<std::string>& roots) {
  for (const std::string& root : roots) {
    if (is_writable_folder(root)) return root;
  }
  return absl::PermissionDeniedError(
      absl::StrCat("no folder for the tokens is writable: ", absl::StrJoin(roots, ", "),
                   "; set MUSTER_TOKEN_CACHE=FOLDER"));
}

// Creates `path` and blocks until it has locked the file. Returns Cancelled after `stop` was set.
absl::StatusOr<int> wait_for_lock(const std::string& path, const std::atomic<bool>* stop,
                                  const std::function<void()>& on_wait) {
  const int made = open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0666);
  if (made < 0) return errno_status(errno, absl::StrCat("cannot make ", path));
  close(made);
  for (bool is_first = true;; is_first = false) {
    const auto lock = try_lock(path);
    if (!lock.ok()) return lock.status();
    if (lock->has_value()) return **lock;
    if (is_first && on_wait) on_wait();
    if (stop != nullptr && *stop)
      return absl::CancelledError("stopped while another process tokenises");
    std::this_thread::sleep_for(kLockPeriod);
  }
}

// Returns whether `folder` is that of the data set `name`. The name may begin with folders that are
// already a part of the root.
bool is_data_set(const std::string& folder, const std::string& name) {
  return folder == name || absl::StartsWith(folder, name + "/") ||
         absl::EndsWith(name, "/" + folder);
}

// Names of data sets of TFDS. A folder that has only such folders holds several data sets, not the
// parts of a mixture.
constexpr std::string_view kDataSetNames[] = {
    "billsum",       "bookcorpus",  "bool_q",    "boolq",     "c4",
    "cnn_dailymail", "glue",        "gutenberg", "lambada",   "lm1b",
    "mlqa",          "openwebtext", "pile",      "piqa",      "scientific_papers",
    "squad",         "super_glue",  "the_pile",  "trivia_qa", "wiki40b",
    "wikipedia",     "wikitext",    "xnli"};

bool is_data_set_name(std::string_view name) {
  return std::ranges::find(kDataSetNames, name) != std::end(kDataSetNames);
}

// Returns the folders directly below `root` in natural order, without hidden ones.
std::vector<std::string> folders_in(const std::string& root) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!name.starts_with('.') && entry->is_directory(error)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end(), natural_less);
  return names;
}

absl::Status no_data_set(const std::string& root, const std::string& name,
                         const std::vector<std::string>& folders) {
  return absl::NotFoundError(absl::StrCat(
      "no data set ", name, " in ", root, ": ",
      folders.empty() ? "it has no folder of that name, and none with a dataset_info.json"
                      : absl::StrCat("it has ", first_names(folders, kNamesListed),
                                     "; dataset_name=NAME selects one")));
}

// Data sets that TFDS has not written, such as lambada/ with JSON lines beside bool_q/, are not one
// corpus. A mixture such as RedPajama, with arxiv/ and github/ beside c4/ and wikipedia/, is one.
absl::Status check_one_corpus(const std::string& root) {
  std::vector<std::string> names = folders_in(root);
  std::erase(names, "downloads");  // TFDS makes this folder beside the data sets
  if (names.size() < 2 || !std::ranges::all_of(names, is_data_set_name)) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat(root, " has several data sets: ", first_names(names, kNamesListed),
                   "; dataset_name=NAME selects one, or give its folder: ", root, "/",
                   names.front(), "; dataset_type=hf trains on all of them"));
}

// TFDS writes into NAME.incomplete…, which it renames at the end.
bool has_incomplete_download(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (absl::StrContains(it->path().filename().string(), ".incomplete")) return true;
  return false;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> expand_pattern(const std::string& pattern) {
  if (pattern.find_first_of("*?[") == std::string::npos) return std::vector<std::string>{pattern};
  glob_t found{};
  const absl::Cleanup release = [&] { globfree(&found); };
  const int result = glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  if (result == GLOB_NOMATCH) return absl::NotFoundError(absl::StrCat("no file matches ", pattern));
  if (result != 0)
    return absl::InternalError(absl::StrCat("cannot list the files that match ", pattern));
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  std::sort(paths.begin(), paths.end(), natural_less);
  return paths;
}

absl::StatusOr<std::string> find_tfds_folder(const std::string& root, const std::string& name,
                                             bool is_stated) {
  std::error_code error;
  if (!fs::is_directory(root, error)) return root;  // a file, or an error that names it
  if (is_token_folder(root)) return root;
  const std::vector<std::string> folders = tfds_folders_below(root);
  if (folders == std::vector<std::string>{"."}) return root;
  const std::string wanted = absl::StrReplaceAll(name, {{":", "/"}});
  std::vector<std::string> matches;
  std::copy_if(folders.begin(), folders.end(), std::back_inserter(matches),
               [&](const std::string& folder) { return is_data_set(folder, wanted); });
  if (matches.empty()) {
    // One that TFDS has not written.
    if (const std::string own = absl::StrCat(root, "/", wanted);
        !wanted.empty() && fs::is_directory(own, error) && !has_incomplete_download(own))
      return own;
    if (is_stated) return no_data_set(root, name, folders.empty() ? folders_in(root) : folders);
    if (auto status = check_one_corpus(root); !status.ok()) return status;
    if (folders.empty()) return root;
    if (folders.size() > 1) return no_data_set(root, name, folders);
    matches = folders;
  }
  // In natural order the newest version is the last.
  const auto parent = [](const std::string& folder) { return fs::path(folder).parent_path(); };
  const bool are_versions = std::all_of(matches.begin(), matches.end(), [&](const auto& folder) {
    return parent(folder) == parent(matches.back());
  });
  if (!are_versions) {
    return absl::NotFoundError(absl::StrCat(root, " has several data sets ", name, ": ",
                                            first_names(matches, kNamesListed),
                                            "; dataset_name=NAME selects one"));
  }
  return absl::StrCat(root, "/", matches.back());
}

absl::StatusOr<CachedTokens> cached_tokens(const TokenCacheOptions& options,
                                           const TokenizeProgressFn& progress,
                                           const std::function<void(const std::string&)>& on_wait) {
  TokenizeOptions run = options.tokenize;
  run.inputs.clear();
  for (const std::string& pattern : options.tokenize.inputs) {
    auto paths = expand_pattern(pattern);
    if (!paths.ok()) return paths.status();
    run.inputs.insert(run.inputs.end(), paths->begin(), paths->end());
  }
  if (run.inputs.size() == 1 && is_token_folder(run.inputs[0]))
    return CachedTokens{run.inputs[0], {}, {}};
  if (run.tokenizer_path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer_path is empty: the text of ", first_names(run.inputs, kNamesListed),
                     " is tokenised before the training; set tokenizer_path=FILE"));
  }
  const auto identity = run_identity(run);
  if (!identity.ok()) return identity.status();
  const std::string name = cache_name(*identity, run.split);
  for (const std::string& root : options.roots) {
    const std::string folder = absl::StrCat(root, "/", name);
    if (has_tokens(folder)) return CachedTokens{folder, {}, {}};
  }
  if (options.only_find)
    return absl::NotFoundError(
        absl::StrCat(first_names(run.inputs, kNamesListed), " is not tokenised yet"));
  const auto root = choose_root(options.roots);
  if (!root.ok()) return root.status();
  CachedTokens tokens{absl::StrCat(*root, "/", name), {}, {}};
  const auto lock = wait_for_lock(tokens.folder + ".lock", run.stop, [&] {
    if (on_wait) on_wait(tokens.folder);
  });
  if (!lock.ok()) return lock.status();
  const absl::Cleanup unlock = [&] { close(*lock); };
  if (has_tokens(tokens.folder)) return tokens;
  run.output_directory = tokens.folder;
  auto report = tokenize_files(run, progress);
  if (!report.ok()) return report.status();
  tokens.report = *std::move(report);
  tokens.is_new = true;
  return tokens;
}

}  // namespace muster::trainer
