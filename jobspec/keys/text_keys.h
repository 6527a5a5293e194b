// The keys of training data that is not tokenized yet: MaxText's dataset_type=c4|tfds|hf|grain. The
// command that starts the job tokenizes the text, and the job trains on the resulting shards.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/settings/settings_reader.h"
#include "trainer_core/base/data_paths.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// One data set of text.
struct TextData {
  std::vector<trainer::DataShare> sources;  // absolute paths of folders, files or patterns
  // name of the data set in a data folder of TFDS (TensorFlow Datasets); may be empty
  std::string dataset;
  bool is_dataset_stated = false;  // the user has set `dataset`, not base.yml
  std::string split;
  std::string field;      // field with the text in JSON lines, TFRecord and Parquet
  bool is_stated = true;  // false: only a preset names the text, and the job may run without it
};

// The texts of a job.
struct JobTexts {
  std::optional<TextData> train;
  std::optional<TextData> eval;
};

// Returns whether this value of dataset_type means text.
bool is_text(std::string_view dataset_type);

// Sets dataset_path, and eval_dataset_path if there is evaluation data, to the text's paths as the
// user wrote them. Stores an error in `reader` if a key is missing.
void read_text_paths(SettingsReader& reader, const std::string& dataset_type,
                     const std::string& working_directory, trainer::TrainConfig& train);

// Returns the texts of a job; both are nullopt if the job trains on shards or synthetic data.
// Requires that the paths in `train` are absolute.
JobTexts read_texts(SettingsReader& reader, const trainer::TrainConfig& train);

// Adds a warning for each key that the user has set and that only other values of dataset_type use.
void warn_of_unread_text_keys(SettingsReader& reader, const std::string& dataset_type,
                              std::vector<std::string>& warnings);

}  // namespace muster::jobspec
