// The splits of a corpus: training, validation and test data, distinguished by the names of files.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster::trainer {

constexpr char kTrainSplit[] = "train";
constexpr char kEverySplit[] = "all";

// Returns the usual name of a split: "train" for "training", "validation" for "val", "valid" and
// "dev", "test" for "testing", "eval" and "evaluation". Any other name is returned unchanged.
std::string usual_split_name(std::string_view name);

// Returns the split of a file whose path is relative to its corpus: a folder of that name
// (`train/00.jsonl.zst`), or the first such word in the file's name
// (`c4-validation.00000-of-00008.json.gz`). Empty: the path has none of these words.
std::string split_of(std::string_view relative_path);

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
