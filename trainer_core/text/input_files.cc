#include "trainer_core/text/input_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "common/errno_status.h"
#include "common/natural_order.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::pair<std::string_view, InputFormat>, 9> kEndings = {{
    {".txt", InputFormat::kText},
    {".text", InputFormat::kText},
    {".jsonl", InputFormat::kJsonLines},
    {".ndjson", InputFormat::kJsonLines},
    // C4 on Hugging Face has c4-train.00000-of-01024.json.gz, which are JSON lines.
    {".json", InputFormat::kJsonLines},
    {".tfrecord", InputFormat::kTfRecord},
    {".tfrecords", InputFormat::kTfRecord},
    {".parquet", InputFormat::kParquet},
    {".pq", InputFormat::kParquet},
}};
// File name endings of compressions that are not supported.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kUnreadEndings = {
    {{".bz2", "bzip2"}, {".xz", "xz"}, {".zip", "zip"}, {".7z", "7z"}, {".lz4", "lz4"}}};
constexpr std::string_view kShardedTfRecord = ".tfrecord-";

absl::StatusOr<InputFile> examine(const std::string& path, InputFormat format) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0)
    return errno_status(errno, absl::StrCat("cannot open ", path));
  if (!S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is neither a regular file nor a folder"));
  return InputFile{path, format, static_cast<uint64_t>(info.st_size),
                   int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

// Rejects a file of a supported format in an unsupported compression: ignoring it would lose data
// that the user intends to read.
absl::Status check_compression(const std::string& name) {
  for (const auto& [ending, kind] : kUnreadEndings) {
    if (!absl::EndsWithIgnoreCase(name, av(ending))) continue;
    if (!format_of(std::string_view(name).substr(0, name.size() - ending.size()))) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is compressed: ", av(kind), " is not read; recompress it with zstd or gzip"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> names_below(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->path().filename().string().starts_with(".")) {
      entry.disable_recursion_pending();
    } else if (std::error_code ignored; entry->is_regular_file(ignored)) {
      names.push_back(entry->path().string());
    }
    if (names.size() > kInputFilesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(folder, " has more than ", kInputFilesMax, " files; join them first"));
    }
  }
  if (error) return errno_status(error.value(), absl::StrCat("cannot list ", folder));
  std::sort(names.begin(), names.end(), natural_less);
  return names;
}

absl::Status add_folder(const std::string& folder, std::optional<InputFormat> forced,
                        InputFiles& found) {
  const auto names = names_below(folder);
  if (!names.ok()) return names.status();
  const size_t before = found.files.size();
  for (const std::string& name : *names) {
    const std::optional<InputFormat> format = forced ? forced : format_of(name);
    if (!format) {
      if (auto status = check_compression(name); !status.ok()) return status;
      found.ignored.push_back(name);
      continue;
    }
    auto file = examine(name, *format);
    if (!file.ok()) return file.status();
    found.files.push_back(*std::move(file));
  }
  if (found.files.size() > before) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("folder ", folder, " has no text in it: none of its ", names->size(),
                   " files ends in .txt, .jsonl, .json, .tfrecord or .parquet (with .gz or .zst or "
                   "without); --format says how to read all of them"));
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
                                            std::optional<InputFormat> forced) {
  InputFiles found;
  for (const std::string& path : paths) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      if (auto status = add_folder(path, forced, found); !status.ok()) return status;
      continue;
    }
    auto file = examine(path, forced.value_or(format_of(path).value_or(InputFormat::kText)));
    if (!file.ok()) return file.status();
    found.files.push_back(*std::move(file));
  }
  if (found.files.empty()) return absl::InvalidArgumentError("no input: name a file or a folder");
  return found;
}

uint64_t total_bytes(std::span<const InputFile> files) {
  return std::accumulate(files.begin(), files.end(), uint64_t{0},
                         [](uint64_t sum, const InputFile& file) { return sum + file.bytes; });
}

}  // namespace muster::trainer
