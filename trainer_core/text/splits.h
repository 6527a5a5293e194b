// The splits of a corpus: training, validation and test data, which the names of files tell apart.
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
constexpr char kEverySplit[] = "all";

// Returns the usual name of a split: "train" for "training", "validation" for "val", "valid" and
// "dev", "test" for "testing", "eval" and "evaluation". Any other name is returned unchanged.
std::string usual_split_name(std::string_view name);

// Returns the split of each file of a corpus, whose paths are relative to it; empty: the layout
// tells none. A word is a split where it is
//   - a folder directly below the corpus, or beside one for training (`en/train`, `en/test`),
//   - a whole name (`val.jsonl.zst`), or before a shard's number (`c4-test.00000-of-00008.json`),
//   - the part of a name that differs from a file for training (`Tales-valid.txt` beside
//     `Tales-train.txt`; the numbers in the names may differ).
// Elsewhere it says nothing: `linux-dev.txt` may be text about devices.
std::vector<std::string> splits_of(const std::vector<std::string>& relative_paths);

// A data file that TensorFlow Datasets has written: `c4-train.tfrecord-00003-of-01024`.
struct TfdsFile {
  std::string split;   // "train"
  std::string suffix;  // "tfrecord"
  size_t shard = 0;
  size_t shards = 0;
};

// nullopt for any other name.
std::optional<TfdsFile> parse_tfds_name(std::string_view file_name);
// True for the files that make a folder one of TFDS: `dataset_info.json` and `features.json`.
bool is_tfds_metadata(std::string_view file_name);

// Selects the files of a corpus by their splits.
struct SplitChoice {
  std::string split;                       // the one that is read; empty: the files have none
  bool takes_unnamed = true;               // whether files without a split are read
  bool takes_all = false;                  // whether every file is read
  std::map<std::string, size_t> left_out;  // files per split that are not read

  bool takes(const std::string& split_of_file) const {
    return takes_all || (split_of_file.empty() ? takes_unnamed : split_of_file == split);
  }
};

// `files`: the number of files per split; "" counts those without one, which belong to "train".
// `requested`: a split, kEverySplit, or empty: the only split if there is one, else "train".
// InvalidArgument names the splits of `folder` if the requested one is missing, or if there are
// several without a train.
absl::StatusOr<SplitChoice> choose_split(const std::string& folder,
                                         const std::map<std::string, size_t>& files,
                                         const std::string& requested);

}  // namespace muster::trainer
