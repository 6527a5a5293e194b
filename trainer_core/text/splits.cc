#include "trainer_core/text/splits.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "common/text/number_text.h"

namespace muster::trainer {
namespace {

// The words by which Hugging Face's `datasets` recognises splits.
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kWords = {{
    {"train", "train"},
    {"training", "train"},
    {"validation", "validation"},
    {"valid", "validation"},
    {"val", "validation"},
    {"dev", "validation"},
    {"test", "test"},
    {"testing", "test"},
    {"eval", "test"},
    {"evaluation", "test"},
}};
// TFDS writes at least this many digits.
constexpr size_t kShardDigits = 5;

std::string_view split_of_word(std::string_view word) {
  const std::string lower = absl::AsciiStrToLower(av(word));
  for (const auto& [name, split] : kWords) {
    if (lower == name) return split;
  }
  return "";
}

// Removes "-00003" or "-of-01024" from the end of `name`, and stores its number.
bool take_number(std::string_view& name, std::string_view before, size_t& number) {
  const size_t at = name.rfind(before);
  if (at == std::string_view::npos) return false;
  const std::string_view digits = name.substr(at + before.size());
  if (digits.size() < kShardDigits || !absl::SimpleAtoi(av(digits), &number)) return false;
  name = name.substr(0, at);
  return true;
}

std::string names_of(const std::map<std::string, size_t>& files) {
  std::vector<std::string> names;
  for (const auto& [name, count] : files) {
    if (!name.empty()) names.push_back(name);
  }
  return absl::StrJoin(names, ", ");
}

// True for "-00003-of-01024…" and ".00003-of-01024…".
bool begins_with_shard(std::string_view text) {
  if (text.empty() || (text.front() != '-' && text.front() != '.')) return false;
  const size_t digits = text.find_first_not_of("0123456789", 1);
  return digits != std::string_view::npos && digits > 1 && text.substr(digits, 4) == "-of-";
}

// Returns names that differ in case and numbers alone as one.
std::string without_numbers(std::string_view name) {
  std::string out;
  for (const char c : absl::AsciiStrToLower(av(name))) {
    const bool is_digit = absl::ascii_isdigit(static_cast<unsigned char>(c));
    if (!is_digit || out.empty() || out.back() != '#') out.push_back(is_digit ? '#' : c);
  }
  return out;
}

// Returns the words of a file's or folder's name, which are divided by other bytes than letters.
std::vector<std::string_view> words_of(std::string_view name) {
  std::vector<std::string_view> words;
  for (size_t begin = 0; begin < name.size();) {
    size_t end = begin;
    while (end < name.size() && absl::ascii_isalpha(static_cast<unsigned char>(name[end]))) ++end;
    if (end > begin) words.push_back(name.substr(begin, end - begin));
    begin = std::max(end, begin + 1);
  }
  return words;
}

// Returns a file's name without the endings of its compression and format.
std::string_view stem_of(std::string_view name) {
  for (const std::string_view compression : {".gz", ".zst"}) {
    if (absl::EndsWithIgnoreCase(av(name), av(compression))) name.remove_suffix(compression.size());
  }
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos || dot == 0 ? name : name.substr(0, dot);
}

// Returns the split whose word the name begins with, or ends with but for numbers; "" if none.
std::string_view split_of_name(std::string_view name) {
  const std::vector<std::string_view> words = words_of(name);
  if (words.empty()) return "";
  const bool begins = words.front().data() == name.data();
  const std::string_view first = begins ? split_of_word(words.front()) : "";
  return first.empty() ? split_of_word(words.back()) : first;
}

// Returns the split at the edge of a path's innermost name that has one; "" if none has.
std::string_view split_of_path(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  std::string_view split = split_of_name(stem_of(name));
  for (std::filesystem::path folder = path.parent_path(); split.empty() && folder.has_filename();
       folder = folder.parent_path())
    split = split_of_name(folder.filename().string());
  return split;
}

// Returns whether a name of the path has a word that `is_wanted` accepts.
template <typename IsWanted>
bool has_word(const std::filesystem::path& path, const IsWanted& is_wanted) {
  return std::ranges::any_of(path, [&](const std::filesystem::path& part) {
    const std::string name = part.string();
    return std::ranges::any_of(
        words_of(name), [&](std::string_view word) { return is_wanted(split_of_word(word)); });
  });
}

// The names of a corpus, to find out whether a split's word has a counterpart.
class Layout {
 public:
  explicit Layout(const std::vector<std::string>& relative_paths) {
    std::set<std::string_view> at_edges;
    for (const std::string& path : relative_paths) {
      for (std::filesystem::path part(path); part.has_filename(); part = part.parent_path())
        names_.insert(without_numbers(part.string()));
      has_splits_ = has_splits_ ||
                    has_word(path, [](std::string_view split) { return split == kTrainSplit; });
      at_edges.insert(split_of_path(path));
    }
    has_splits_ = has_splits_ || (at_edges.size() > 1 && !at_edges.contains(""));
  }

  std::string split_of(const std::string& relative_path) const {
    const std::filesystem::path path(relative_path);
    std::filesystem::path above;
    for (const auto& folder : path.parent_path()) {
      const std::string_view split = split_of_word(folder.string());
      if (!split.empty() && (above.empty() || has_other(above, split))) return std::string(split);
      above /= folder;
    }
    std::string split = split_of_name(above, path.filename().string());
    if (split.empty() && has_splits_) split = split_of_path(path);
    return split;
  }

 private:
  // Returns whether `folder` has an entry for training, or one of another split than `split`.
  bool has_other(const std::filesystem::path& folder, std::string_view split) const {
    return std::ranges::any_of(kWords, [&](const auto& word) {
      return (word.second == kTrainSplit || word.second != split) &&
             names_.contains(without_numbers((folder / word.first).string()));
    });
  }

  bool has_training(const std::filesystem::path& folder, std::string_view before,
                    std::string_view after) const {
    return std::ranges::any_of(kWords, [&](const auto& word) {
      return word.second == kTrainSplit &&
             names_.contains(without_numbers(
                 (folder / absl::StrCat(av(before), av(word.first), av(after))).string()));
    });
  }

  std::string split_of_name(const std::filesystem::path& folder, std::string_view name) const {
    for (const std::string_view word : words_of(name)) {
      const auto begin = static_cast<size_t>(word.data() - name.data());
      const std::string_view split = split_of_word(word);
      const std::string_view rest = name.substr(begin + word.size());
      const bool is_whole = begin == 0 && (rest.empty() || rest.front() == '.');
      if (!split.empty() && (is_whole || begins_with_shard(rest) ||
                             has_training(folder, name.substr(0, begin), rest)))
        return std::string(split);
    }
    return "";
  }

  std::set<std::string> names_;
  // The corpus states splits: it has a word for training, or only files of several splits.
  bool has_splits_ = false;
};

}  // namespace

std::string usual_split_name(std::string_view name) {
  const std::string_view usual = split_of_word(name);
  return std::string(usual.empty() ? name : usual);
}

std::vector<std::string> splits_of(const std::vector<std::string>& relative_paths) {
  const Layout layout(relative_paths);
  std::vector<std::string> splits;
  splits.reserve(relative_paths.size());
  for (const std::string& path : relative_paths) splits.push_back(layout.split_of(path));
  return splits;
}

bool has_held_out_word(const std::string& relative_path) {
  return has_word(relative_path,
                  [](std::string_view split) { return !split.empty() && split != kTrainSplit; });
}

std::optional<TfdsFile> parse_tfds_name(std::string_view file_name) {
  TfdsFile file;
  std::string_view rest = file_name;
  if (!take_number(rest, "-of-", file.shards) || !take_number(rest, "-", file.shard))
    return std::nullopt;
  const size_t dot = rest.rfind('.');
  const size_t dash = dot == std::string_view::npos ? dot : rest.rfind('-', dot);
  if (dash == std::string_view::npos || dash == 0 || dash + 1 == dot || dot + 1 == rest.size())
    return std::nullopt;
  file.split = usual_split_name(rest.substr(dash + 1, dot - dash - 1));
  file.suffix = std::string(rest.substr(dot + 1));
  return file;
}

bool is_tfds_metadata(std::string_view file_name) {
  return file_name == "dataset_info.json" || file_name == "features.json";
}

absl::StatusOr<SplitChoice> choose_split(const std::string& folder,
                                         const std::map<std::string, size_t>& files,
                                         const std::string& requested) {
  SplitChoice choice;
  const size_t unnamed = files.contains("") ? files.at("") : 0;
  const size_t splits = files.size() - (unnamed > 0 ? 1 : 0);
  if (requested == kEverySplit) {
    choice.takes_all = true;
    return choice;
  }
  const bool is_only = splits == 1 && unnamed == 0;
  choice.split = requested.empty() ? (splits == 0 ? ""
                                      : is_only   ? files.begin()->first
                                                  : kTrainSplit)
                                   : usual_split_name(requested);
  choice.takes_unnamed = choice.split.empty() || choice.split == kTrainSplit;
  const bool has_some = files.contains(choice.split) || (choice.takes_unnamed && unnamed > 0);
  if (!has_some && !files.empty()) {
    if (requested.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("folder ", folder, " has the splits ", names_of(files),
                       " and no train; --split names the one to read, --split all reads every "
                       "file"));
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "folder ", folder, " has no split \"", requested, "\"; ",
        splits == 0 ? "the names of its files do not distinguish splits"
                    : absl::StrCat("it has ", names_of(files)),
        unnamed > 0 && splits > 0 ? absl::StrCat(", and ", counted(unnamed, "file"), " without one")
                                  : ""));
  }
  for (const auto& [split, count] : files) {
    if (!choice.takes(split)) choice.left_out[split] = count;
  }
  return choice;
}

}  // namespace muster::trainer
