// Finds the files of a corpus, their order, and their formats.
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

enum class InputFormat { kText, kJsonLines, kTfRecord, kParquet };
constexpr ValueNames<4> kInputFormatNames = {"text", "jsonl", "tfrecord", "parquet"};

// More files than any data set in use has, and few enough to list in memory.
constexpr size_t kInputFilesMax = 1'000'000;

struct InputFile {
  std::string path;
  InputFormat format = InputFormat::kText;
  // Size and time when the list was made, to detect changes since then.
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
};

// An entry of a folder that is not read, with the reason: "hidden", "unknown ending".
struct IgnoredEntry {
  std::string path;
  std::string reason;
};

struct InputFiles {
  std::vector<InputFile> files;
  std::vector<IgnoredEntry> ignored;  // entries of the folders that are not read
  std::string split;                  // the one that is read of the folders; empty: they have none
  std::map<std::string, size_t> left_out;  // files per split that are not read
  std::vector<std::string> notes;          // sentences: a data set with missing shards
};

// Derives the format from the name's ending, without .gz and .zst; TFDS writes
// `c4-train.tfrecord-00000-of-01024`. nullopt for any other name.
std::optional<InputFormat> format_of(std::string_view path);

// Lists files in the given order. Folders are listed recursively, in natural order (part-2 before
// part-10), as walk_folder() does. Every entry of a folder is read, counted in `left_out`, or in
// `ignored`. `forced` applies to all files; without it, a file that is named directly and has no
// known ending is text. `split` selects among the files of each folder, as choose_split() does. A
// folder of TensorFlow Datasets, which has a dataset_info.json or a features.json, is the data
// files beside these; everything else in it is metadata. Errors: NotFound, also for a symbolic link
// whose target is missing; InvalidArgument for a folder without any readable file or with several
// data sets of TFDS, and for a pointer of Git LFS; messages name the path.
absl::StatusOr<InputFiles> find_input_files(std::span<const std::string> paths,
                                            std::optional<InputFormat> forced,
                                            const std::string& split = "");

// Returns the folders of TFDS data sets at and below `root`, relative to it, in natural order; "."
// for the root itself. Empty if there is none, or if `root` cannot be listed.
std::vector<std::string> tfds_folders_below(const std::string& root);

// Returns the sum of the files' sizes.
uint64_t total_bytes(std::span<const InputFile> files);

}  // namespace muster::trainer
