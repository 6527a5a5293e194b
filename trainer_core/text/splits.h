// The splits of a corpus (training, validation and test data), which are derived from the names of
// its files.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

constexpr char kTrainSplit[] = "train";
// The value with which a user requests all files.
constexpr char kEverySplit[] = "all";

// Returns the usual name of a split: "train" for "training", "validation" for "val", "valid" and
// "dev", "test" for "testing", "eval" and "evaluation". Returns any other name unchanged.
std::string usual_split_name(std::string_view name);

// Returns the split of each file of a corpus; an empty text if the layout does not state one. The
// paths are relative to the corpus. A word is a split in these places:
//   - a folder directly below the corpus, or beside one of another split (`en/train`, `en/test`),
//   - a whole name (`val.jsonl.zst`), or before a shard's number (`c4-test.00000-of-00008.json`),
//   - the part of a name that differs from a file for training (`Tales-valid.txt` beside
//     `Tales-train.txt`; the numbers in the names may differ),
//   - the first or last word of a file's or folder's name (`dev-clean/`, `de_valid.jsonl`), if any
//     name of the corpus has a word for training, or every file has such a word and they differ.
// Elsewhere it has no meaning: `linux-dev.txt` alone may be text about devices.
std::vector<std::string> splits_of(const std::vector<std::string>& relative_paths);

// Returns whether a name of the path has a word of a split other than training.
bool has_held_out_word(const std::string& relative_path);

// The parts of the name of a data file that TensorFlow Datasets (TFDS) has written:
// `c4-train.tfrecord-00003-of-01024`.
struct TfdsFile {
  std::string split;   // "train"
  std::string suffix;  // "tfrecord"
  size_t shard = 0;    // 3
  size_t shards = 0;   // 1024
};

// Parses such a name; nullopt for any other name.
std::optional<TfdsFile> parse_tfds_name(std::string_view file_name);
// Returns whether a file of this name identifies its folder as a data set of TFDS:
// `dataset_info.json` or `features.json`.
bool is_tfds_metadata(std::string_view file_name);

// The files of a folder that are read, by their splits.
struct SplitChoice {
  // The split that is read; empty: the files have no splits.
  std::string split;
  bool takes_unnamed = true;               // files without a split are read
  bool takes_all = false;                  // all files are read
  std::map<std::string, size_t> left_out;  // number of unread files by split

  // Returns whether files of this split are read; "" for files without a split.
  bool takes(const std::string& split_of_file) const {
    return takes_all || (split_of_file.empty() ? takes_unnamed : split_of_file == split);
  }
};

// Chooses the split to read. `files` has the number of files of each split; the key "" is for files
// without a split, which are read with "train". `requested` is a split or kEverySplit; if it is
// empty, the choice is the only split if there is exactly one, otherwise "train". Returns
// InvalidArgument with the splits of `folder` if the choice has no files.
absl::StatusOr<SplitChoice> choose_split(const std::string& folder,
                                         const std::map<std::string, size_t>& files,
                                         const std::string& requested);

}  // namespace muster::trainer
