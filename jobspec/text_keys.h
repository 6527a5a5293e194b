// The keys of training data that is still text: MaxText's dataset_type=c4|tfds|hf|grain. The
// command that starts the job tokenizes it, and the job trains on the shards.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/settings_reader.h"
#include "trainer_core/base/data_paths.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// One data set of text.
struct TextData {
  std::vector<trainer::DataShare> sources;  // folders, files or patterns; absolute
  std::string dataset;                      // its name in a data folder of TFDS; may be empty
  bool is_dataset_stated = false;           // by the user, not by base.yml
  std::string split;
  std::string field;      // of JSON lines, TFRecord and Parquet
  bool is_stated = true;  // false: a preset requests it, and the job runs without it
};

struct JobTexts {
  std::optional<TextData> train;
  std::optional<TextData> eval;
};

// True for the values of dataset_type that name text.
bool is_text(std::string_view dataset_type);

// Sets dataset_path, and eval_dataset_path if there is evaluation data, to the places of the text,
// as the user wrote them. Keeps an error in `reader` if a key is missing.
void read_text_paths(SettingsReader& reader, const std::string& dataset_type,
                     trainer::TrainConfig& train);

// Returns the texts of a job; both are empty if it trains on shards or synthetic data. Requires:
// the paths in `train` are absolute.
JobTexts read_texts(SettingsReader& reader, const trainer::TrainConfig& train);

// Warns of keys that only other values of dataset_type read.
void warn_of_unread_text_keys(SettingsReader& reader, const std::string& dataset_type,
                              std::vector<std::string>& warnings);

}  // namespace muster::jobspec
