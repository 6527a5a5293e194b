#include "trainer_core/text/input_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <system_error>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "common/text/natural_order.h"
#include "trainer_core/base/file_kind.h"
#include "trainer_core/base/first_names.h"
#include "trainer_core/text/folder_walk.h"
#include "trainer_core/text/splits.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::pair<std::string_view, InputFormat>, 9> kEndings = {{
    {".txt", InputFormat::kText},
    {".text", InputFormat::kText},
    {".jsonl", InputFormat::kJsonLines},
    {".ndjson", InputFormat::kJsonLines},
    // Files named .json are JSON lines in C4 on Hugging Face (c4-train.00000-of-01024.json.gz).
    {".json", InputFormat::kJsonLines},
    {".tfrecord", InputFormat::kTfRecord},
    {".tfrecords", InputFormat::kTfRecord},
    {".parquet", InputFormat::kParquet},
    {".pq", InputFormat::kParquet},
}};
// File name endings of compressions that are not supported.
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kUnreadEndings = {
    {{".bz2", "bzip2"},
     {".xz", "xz"},
     {".zip", "zip"},
     {".7z", "7z"},
     {".lz4", "lz4"},
     {".lz", "lzip"},
     {".lzma", "lzma"},
     {".lzo", "lzop"},
     {".sz", "snappy"},
     {".br", "brotli"},
     {".z", "compress"},
     {".rar", "rar"}}};
constexpr std::string_view kShardedTfRecord = ".tfrecord-";

// A small file may stand in place of a large one.
absl::Status check_pointer(const std::string& path, uint64_t bytes) {
  if (bytes == 0 || bytes > kFileKindBytes) return absl::OkStatus();
  return check_no_pointer(path, first_bytes(path), bytes);
}

absl::StatusOr<InputFile> examine(const std::string& path, InputFormat format) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return open_failure(errno, path);
  if (!S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is neither a regular file nor a folder"));
  if (auto status = check_pointer(path, static_cast<uint64_t>(info.st_size)); !status.ok())
    return status;
  // A text may be of web pages; other formats are not.
  const bool is_compressed =
      absl::EndsWithIgnoreCase(path, ".gz") || absl::EndsWithIgnoreCase(path, ".zst");
  if (format != InputFormat::kText || is_compressed) {
    if (auto status = check_no_web_page(path, first_bytes(path)); !status.ok()) return status;
  }
  return InputFile{path, format, static_cast<uint64_t>(info.st_size),
                   int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

// Returns an error for a file of a supported format in an unsupported compression: if it were
// ignored, data that the user intends to read would be missing.
absl::Status check_compression(const std::string& name) {
  for (const auto& [ending, kind] : kUnreadEndings) {
    if (!absl::EndsWithIgnoreCase(name, av(ending))) continue;
    if (!format_of(std::string_view(name).substr(0, name.size() - ending.size()))) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is compressed: ", av(kind), " is not read; recompress it with zstd or gzip"));
  }
  return absl::OkStatus();
}

// A file below a folder, with the format and split that its name states.
struct Candidate {
  std::string path;
  InputFormat format = InputFormat::kText;
  std::string split;
};

// TFDS prepares a data set in a folder of this name, which remains if the download is killed.
constexpr std::string_view kIncomplete = ".incomplete";

std::set<std::string> tfds_folders(const std::vector<std::string>& names) {
  std::set<std::string> folders;
  for (const std::string& name : names) {
    const fs::path path(name);
    if (!is_tfds_metadata(path.filename().string())) continue;
    const std::string folder = path.parent_path().string();
    if (!absl::StrContains(folder, av(kIncomplete))) folders.insert(folder);
  }
  return folders;
}

// The maximum number of names in a sentence.
constexpr size_t kNamesListed = 4;

// Completes the reasons of entries that are the same file as one that is not read.
void name_unread_twins(InputFiles& found) {
  std::set<std::string> unread;
  for (const IgnoredEntry& entry : found.ignored) unread.insert(entry.path);
  for (IgnoredEntry& entry : found.ignored) {
    if (unread.contains(entry.same_as)) entry.reason += kUnreadTwin;
  }
}

absl::Status check_single_data_set(const std::string& folder, const std::set<std::string>& sets) {
  if (sets.size() < 2) return absl::OkStatus();
  std::vector<std::string> names;
  for (const std::string& set : sets) names.push_back(fs::path(set).lexically_relative(folder));
  return absl::InvalidArgumentError(
      absl::StrCat("folder ", folder, " has ", sets.size(), " data sets of TFDS: ",
                   first_names(names, kNamesListed), "; name the folder of one of them"));
}

// Returns the data files of a TFDS data set. The rest of its folder is metadata, which needs no
// report to the user.
absl::StatusOr<std::vector<Candidate>> tfds_candidates(const std::string& data_set,
                                                       const std::vector<std::string>& names,
                                                       InputFiles& found) {
  std::vector<Candidate> candidates;
  for (const std::string& name : names) {
    const fs::path path(name);
    if (path.parent_path() != fs::path(data_set)) {
      found.ignored.push_back({name, "outside the data set of TFDS"});
      continue;
    }
    const auto file = parse_tfds_name(path.filename().string());
    if (!file) {
      found.ignored.push_back({name, "metadata of TFDS"});
      continue;
    }
    if (file->suffix == "tfrecord") {
      candidates.push_back({name, InputFormat::kTfRecord, file->split});
    } else if (file->suffix == "parquet") {
      candidates.push_back({name, InputFormat::kParquet, file->split});
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ", file->suffix,
                       " files of TFDS are not read; prepare the data set "
                       "with file_format=tfrecord (tfds build --file_format=tfrecord)"));
    }
  }
  if (!candidates.empty()) return candidates;
  return absl::InvalidArgumentError(absl::StrCat(
      "folder ", data_set,
      " is a data set of TFDS without data: no file in it is "
      "named like NAME-train.tfrecord-00000-of-00512; its download may be incomplete"));
}

absl::StatusOr<std::vector<Candidate>> candidates_below(const std::string& folder,
                                                        const std::vector<std::string>& names,
                                                        std::optional<InputFormat> forced,
                                                        InputFiles& found) {
  std::vector<Candidate> candidates;
  for (const std::string& name : names) {
    const std::optional<InputFormat> format = forced ? forced : format_of(name);
    if (format) {
      candidates.push_back({name, *format, ""});
      continue;
    }
    if (auto status = check_compression(name); !status.ok()) return status;
    found.ignored.push_back(
        {name, is_unfinished_download(name) ? "an unfinished download" : "unknown ending"});
  }
  std::vector<std::string> relative;
  for (const Candidate& file : candidates)
    relative.push_back(fs::path(file.path).lexically_relative(folder).string());
  const std::vector<std::string> splits = splits_of(relative);
  for (size_t i = 0; i < candidates.size(); ++i) candidates[i].split = splits[i];
  if (!candidates.empty()) return candidates;
  return absl::InvalidArgumentError(
      absl::StrCat("folder ", folder, " has no text in it: none of its ", names.size(),
                   " files ends in .txt, .jsonl, .json, .tfrecord or .parquet (with .gz or .zst or "
                   "without); --format sets the format of all of them"));
}

// Adds a note about data sets of which shards are missing. Only the numbers in the files' names
// reveal an incomplete download.
void note_missing_shards(const std::vector<Candidate>& taken, InputFiles& found) {
  // Name → number of existing shards, and of all shards.
  std::map<std::string, std::pair<size_t, size_t>> sets;
  for (const Candidate& file : taken) {
    const std::string name = fs::path(file.path).filename().string();
    const auto parsed = parse_tfds_name(name);
    if (!parsed) continue;
    auto& [here, all] = sets[name.substr(0, name.rfind('.'))];
    ++here;
    all = parsed->shards;
  }
  for (const auto& [name, count] : sets) {
    if (count.first >= count.second) continue;
    found.notes.push_back(
        absl::StrCat(name, " has ", count.first, " of its ", count.second, " shards here"));
  }
}

// Files that several inputs name are read several times, as stated; the report has a note.
void note_repeated(InputFiles& found) {
  std::map<std::pair<dev_t, ino_t>, size_t> times;
  size_t repeated = 0;
  std::string first;
  for (const InputFile& file : found.files) {
    struct stat info {};
    if (stat(file.path.c_str(), &info) != 0) continue;
    if (++times[{info.st_dev, info.st_ino}] != 2) continue;
    if (repeated++ == 0) first = file.path;
  }
  if (repeated == 0) return;
  found.notes.push_back(absl::StrCat(repeated, repeated == 1 ? " file is" : " files are",
                                     " named by several inputs and read several times: ", first,
                                     repeated > 1 ? ", …" : ""));
}

// Adds a note about files that are read with training, although their names have another split's
// word.
void note_words(const std::string& folder, const std::vector<Candidate>& taken, InputFiles& found) {
  std::vector<std::string> names;
  for (const Candidate& file : taken) {
    const std::string name = fs::path(file.path).lexically_relative(folder).string();
    if (file.split.empty() && has_held_out_word(name)) names.push_back(name);
  }
  if (names.empty()) return;
  const bool is_one = names.size() == 1;
  found.notes.push_back(absl::StrCat(
      first_names(names, kNamesListed), is_one ? " counts" : " count", " as train (", names.size(),
      is_one ? " file" : " files", ") despite ",
      is_one ? "the word of another split in its name" : "words of other splits in their names",
      "; --split reads files of a split only where names state it: move held-out files into a "
      "folder such as validation/"));
}

void record(const SplitChoice& choice, InputFiles& found) {
  if (!choice.split.empty()) found.split = choice.split;
  for (const auto& [name, count] : choice.left_out) found.left_out[name] += count;
}

absl::Status add_folder(const std::string& folder, std::optional<InputFormat> forced,
                        const std::string& split, InputFiles& found) {
  const auto names = walk_folder(
      folder, [&](const std::string& path) { return forced || format_of(path); }, found.ignored);
  if (!names.ok()) return names.status();
  const std::set<std::string> data_sets = tfds_folders(*names);
  if (auto status = check_single_data_set(folder, data_sets); !status.ok()) return status;
  auto candidates = data_sets.empty() ? candidates_below(folder, *names, forced, found)
                                      : tfds_candidates(*data_sets.begin(), *names, found);
  if (!candidates.ok()) return candidates.status();
  std::map<std::string, size_t> counts;
  for (const Candidate& file : *candidates) ++counts[file.split];
  const auto choice = choose_split(folder, counts, split);
  if (!choice.ok()) return choice.status();
  std::erase_if(*candidates, [&](const Candidate& file) { return !choice->takes(file.split); });
  for (const Candidate& candidate : *candidates) {
    auto file = examine(candidate.path, forced.value_or(candidate.format));
    if (!file.ok()) return file.status();
    found.files.push_back(*std::move(file));
  }
  record(*choice, found);
  if (!data_sets.empty()) note_missing_shards(*candidates, found);
  if (data_sets.empty() && !choice->takes_all) note_words(folder, *candidates, found);
  return absl::OkStatus();
}

// Files that a user or a pattern ("c4-*") names one by one have splits, too, if their names differ
// in them. Records in `found` which of `files` are not read, and returns these.
absl::StatusOr<std::set<std::string>> unread_of_named(const std::vector<std::string>& files,
                                                      const std::string& split, InputFiles& found) {
  std::vector<std::string> names;
  for (const std::string& file : files) names.push_back(fs::path(file).filename().string());
  std::vector<std::string> splits = splits_of(names);
  bool is_tfds = false;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto data = parse_tfds_name(names[i]);
    if (data) splits[i] = data->split;
    is_tfds = is_tfds || data.has_value();
  }
  std::set<std::string> unread;
  std::map<std::string, size_t> counts;
  for (size_t i = 0; i < files.size(); ++i) {
    if (is_tfds && is_tfds_metadata(names[i])) {
      found.ignored.push_back({files[i], "metadata of TFDS"});
      unread.insert(files[i]);
    } else {
      ++counts[splits[i]];
    }
  }
  if (counts.size() < 2) return unread;
  const auto choice = choose_split(fs::path(files[0]).parent_path().string(), counts, split);
  if (!choice.ok()) return choice.status();
  for (size_t i = 0; i < files.size(); ++i)
    if (!choice->takes(splits[i])) unread.insert(files[i]);
  record(*choice, found);
  return unread;
}

}  // namespace

std::optional<InputFormat> format_of(std::string_view path) {
  std::string name = fs::path(path).filename().string();
  for (const std::string_view compression : {".gz", ".zst"}) {
    if (absl::EndsWithIgnoreCase(name, av(compression)))
      name.resize(name.size() - compression.size());
  }
  for (const auto& [ending, format] : kEndings) {
    if (absl::EndsWithIgnoreCase(name, av(ending))) return format;
  }
  if (absl::StrContains(name, av(kShardedTfRecord))) return InputFormat::kTfRecord;
  return std::nullopt;
}

absl::StatusOr<InputFiles> find_input_files(std::span<const std::string> paths,
                                            std::optional<InputFormat> forced,
                                            const std::string& split) {
  InputFiles found;
  std::error_code error;
  std::vector<std::string> named;
  for (const std::string& path : paths)
    if (!fs::is_directory(path, error)) named.push_back(path);
  const auto unread = unread_of_named(named, split, found);
  if (!unread.ok()) return unread.status();
  for (const std::string& path : paths) {
    if (unread->contains(path)) continue;
    if (fs::is_directory(path, error)) {
      if (auto status = add_folder(path, forced, split, found); !status.ok()) return status;
      continue;
    }
    auto file = examine(path, forced.value_or(format_of(path).value_or(InputFormat::kText)));
    if (!file.ok()) return file.status();
    found.files.push_back(*std::move(file));
  }
  if (found.files.empty()) return absl::InvalidArgumentError("no input: name a file or a folder");
  std::sort(
      found.ignored.begin(), found.ignored.end(),
      [](const IgnoredEntry& a, const IgnoredEntry& b) { return natural_less(a.path, b.path); });
  name_unread_twins(found);
  if (paths.size() > 1) note_repeated(found);  // a folder lists each file once
  return found;
}

std::vector<std::string> tfds_folders_below(const std::string& root) {
  std::vector<IgnoredEntry> ignored;
  const auto names = walk_folder(
      root, [](const std::string&) { return true; }, ignored);
  std::vector<std::string> folders;
  if (!names.ok()) return folders;
  for (const std::string& folder : tfds_folders(*names))
    folders.push_back(fs::path(folder).lexically_relative(root).string());
  std::sort(folders.begin(), folders.end(), natural_less);
  return folders;
}

uint64_t total_bytes(std::span<const InputFile> files) {
  return std::accumulate(files.begin(), files.end(), uint64_t{0},
                         [](uint64_t sum, const InputFile& file) { return sum + file.bytes; });
}

}  // namespace muster::trainer
