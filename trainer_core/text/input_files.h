// Lists the files of a corpus, in order, with their formats.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/base/named_values.h"

namespace muster::trainer {

// The formats of input files.
enum class InputFormat { kText, kJsonLines, kTfRecord, kParquet };
constexpr ValueNames<4> kInputFormatNames = {"text", "jsonl", "tfrecord", "parquet"};

// The maximum number of files: above that of any data set in use, and few enough to list in memory.
constexpr size_t kInputFilesMax = 1'000'000;

// A file of the corpus.
struct InputFile {
  std::string path;
  InputFormat format = InputFormat::kText;
  // Size and time of the last change when the list was made. They reveal later changes.
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
};

// The end of the reason of an entry that is the same file as another entry that is not read.
constexpr char kUnreadTwin[] = ", which is not read";

// An entry of a folder that is not read, with the reason: "hidden", "unknown ending".
struct IgnoredEntry {
  std::string path;
  std::string reason;
  std::string same_as = {};  // another path to the same file or folder; empty: there is none
};

// The files of the corpus, and the entries of its folders that are not read.
struct InputFiles {
  std::vector<InputFile> files;
  std::vector<IgnoredEntry> ignored;
  // The split that is read from folders; empty: they have no splits.
  std::string split;
  std::map<std::string, size_t> left_out;  // number of unread files by split
  // Sentences for the user, about data sets with missing shards, and about names with the word of
  // another split that count as train.
  std::vector<std::string> notes;
};

// Returns the format that the name's ending states, after the removal of .gz and .zst; nullopt if
// the ending is unknown. TFDS's names (`c4-train.tfrecord-00000-of-01024`) have the format
// TFRecord.
std::optional<InputFormat> format_of(std::string_view path);

// Lists the files at `paths`, in the given order. Folders are listed recursively, in natural order
// (part-2 before part-10), as walk_folder() does. Every entry of a folder is read, counted in
// `left_out`, or listed in `ignored`. `forced` is the format of all files; without it, a path of a
// file with an unknown ending is text. `split` selects among the files of each folder, and among
// several named files whose names state different splits (choose_split). A folder with a
// dataset_info.json or a features.json was written by TensorFlow Datasets (TFDS): only its data
// files are listed, all others are metadata. Returns NotFound, also for a symbolic link without a
// target; InvalidArgument for a folder without any readable file or with several data sets of TFDS,
// and for a pointer of Git LFS; the messages contain the path.
absl::StatusOr<InputFiles> find_input_files(std::span<const std::string> paths,
                                            std::optional<InputFormat> forced,
                                            const std::string& split = "");

// Returns the folders of TFDS data sets at and below `root`, relative to `root` and in natural
// order; `root` itself is ".". Returns an empty list if there are none, or if `root` cannot be
// listed.
std::vector<std::string> tfds_folders_below(const std::string& root);

// Returns the sum of the files' sizes.
uint64_t total_bytes(std::span<const InputFile> files);

}  // namespace muster::trainer
