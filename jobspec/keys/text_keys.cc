#include "jobspec/keys/text_keys.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "jobspec/files/value.h"
#include "jobspec/keys/data_keys.h"

namespace muster::jobspec {
namespace {

constexpr std::string_view kTypes[] = {"c4", "tfds", "hf", "grain"};

bool is_tfds(std::string_view type) { return type == "c4" || type == "tfds"; }

// A key, the values of dataset_type that read it, and the shipped default, which a user's copy of
// base.yml states without a request.
struct TextKey {
  std::string_view name;
  std::string_view types;
  std::string_view usual;
};
constexpr TextKey kTextKeys[] = {
    {"dataset_name", "c4 tfds", "c4/en:3.0.1"},
    {"eval_dataset_name", "c4 tfds", "c4/en:3.0.1"},
    {"train_split", "c4 tfds hf grain", "train"},
    {"eval_split", "c4 tfds hf grain", "validation"},
    {"train_data_column", "c4 tfds hf grain", "text"},
    {"eval_data_column", "c4 tfds hf grain", "text"},
    {"hf_path", "hf", ""},
    {"hf_data_dir", "hf", ""},
    {"hf_train_files", "hf", ""},
    {"hf_eval_files", "hf", ""},
    {"hf_eval_split", "hf", ""},
    {"grain_train_files", "grain", ""},
    {"grain_eval_files", "grain", ""},
};

std::string text_of(SettingsReader& reader, std::string_view key, std::string value = "") {
  reader.read(key, value);
  return value;
}

// The first column is the text; the others would be inputs of MaxText's other tasks.
std::string field_of(SettingsReader& reader, std::string_view columns, std::string_view column) {
  std::string field = text_of(reader, column, "text");
  std::vector<std::string> names;
  reader.read(columns, names);
  if (!names.empty() && reader.is_set_by_user(columns)) field = names.front();
  return field;
}

// The loaders of the `datasets` library, which have precedence over folders with their names.
constexpr std::string_view kLoaders[] = {"arrow", "csv", "json", "parquet", "text", "webdataset"};

bool begins_as_path(const std::string& name) {
  return absl::StartsWith(name, "/") || absl::StartsWith(name, ".") || absl::StartsWith(name, "~");
}

// A name on the Hub may also be that of a folder here. As in the `datasets` library, the folder has
// precedence.
bool is_folder(const std::string& name, const std::filesystem::path& working_directory) {
  if (name.empty() || std::ranges::find(kLoaders, name) != std::end(kLoaders)) return false;
  std::error_code error;
  return std::filesystem::is_directory(working_directory / name, error);
}

std::string inside(const std::string& folder, const std::string& name) {
  return name.empty() ? folder : absl::StrCat(folder, "/", name);
}

// `hf_path` is a name on the Hugging Face Hub, one of its loaders ("json", "parquet"), or a folder.
std::string hugging_face_path(SettingsReader& reader, const std::string& working_directory) {
  const std::string files = text_of(reader, "hf_train_files");
  const std::string name = text_of(reader, "hf_path");
  const std::string folder = text_of(reader, "dataset_path");
  const std::string data_dir = text_of(reader, "hf_data_dir");
  if (!files.empty()) return files;
  if (begins_as_path(name)) return inside(name, data_dir);
  if (!folder.empty()) return inside(folder, data_dir);
  if (is_folder(name, working_directory)) return inside(name, data_dir);
  if (name.empty() || is_evaluation(reader)) return "";
  reader.require(false, "hf_path",
                 absl::StrCat("Muster downloads no data sets; fetch it with `hf download ", name,
                              " --repo-type dataset --local-dir FOLDER` and set hf_path=FOLDER"));
  return "";
}

std::string train_path(SettingsReader& reader, const std::string& type,
                       const std::string& working_directory) {
  if (type == "hf") return hugging_face_path(reader, working_directory);
  if (type == "grain") {
    const std::string files = text_of(reader, "grain_train_files");
    if (!files.empty()) return files;
  }
  return text_of(reader, "dataset_path");
}

std::string eval_path(SettingsReader& reader, const std::string& type, const std::string& train) {
  if (is_tfds(type)) return train;
  const std::string files = text_of(reader, type == "hf" ? "hf_eval_files" : "grain_eval_files");
  if (!files.empty()) return files;
  // Files that are named one by one, or by a pattern, are those of training.
  const bool has_files =
      !text_of(reader, type == "hf" ? "hf_train_files" : "grain_train_files").empty();
  return has_files ? "" : train;
}

std::string_view what_is_missing(const std::string& type) {
  if (type == "hf") return "set hf_train_files=FILES or dataset_path=FOLDER to the data";
  if (type == "grain") return "set grain_train_files=FILES or dataset_path=FOLDER to the data";
  return "set dataset_path=FOLDER to the data of TensorFlow Datasets (its TFDS_DATA_DIR), or "
         "dataset_type=synthetic to train without data";
}

std::vector<trainer::DataShare> sources_of(const std::string& paths) {
  const auto shares = trainer::parse_data_paths(paths);
  return shares.ok() ? *shares : std::vector<trainer::DataShare>();
}

}  // namespace

bool is_text(std::string_view dataset_type) {
  return std::find(std::begin(kTypes), std::end(kTypes), dataset_type) != std::end(kTypes);
}

void read_text_paths(SettingsReader& reader, const std::string& dataset_type,
                     const std::string& working_directory, trainer::TrainConfig& train) {
  train.dataset_path = train_path(reader, dataset_type, working_directory);
  // An evaluation alone reads no text of a training.
  if (train.dataset_path.empty() && is_evaluation(reader))
    train.dataset_path = eval_path(reader, dataset_type, "");
  reader.require(!train.dataset_path.empty(), "dataset_type", what_is_missing(dataset_type));
  trainer::EvalConfig& eval = train.eval;
  if (!eval.enabled() || !eval.dataset_path.empty() || eval.holdout_fraction > 0) return;
  eval.dataset_path = eval_path(reader, dataset_type, train.dataset_path);
  // The weights of a blend are those of training.
  if (eval.dataset_path.find(';') != std::string::npos) eval.dataset_path.clear();
}

JobTexts read_texts(SettingsReader& reader, const trainer::TrainConfig& train) {
  const std::string type = text_of(reader, "dataset_type");
  JobTexts texts;
  if (!is_text(type)) return texts;
  TextData& data = texts.train.emplace();
  data.sources = sources_of(train.dataset_path);
  data.split = text_of(reader, "train_split", "train");
  data.field = field_of(reader, "train_data_columns", "train_data_column");
  if (is_tfds(type)) {
    data.dataset = text_of(reader, "dataset_name");
    data.is_dataset_stated = reader.is_set_by_user("dataset_name");
  }
  if (!train.eval.enabled() || train.eval.dataset_path.empty()) return texts;
  TextData& eval = texts.eval.emplace();
  eval.sources = {{train.eval.dataset_path}};
  eval.split = text_of(reader, "eval_split", "validation");
  if (type == "hf") eval.split = text_of(reader, "hf_eval_split", eval.split);
  if (eval.split.empty()) eval.split = "validation";
  eval.field = field_of(reader, "eval_data_columns", "eval_data_column");
  if (is_tfds(type)) {
    eval.dataset = text_of(reader, "eval_dataset_name");
    eval.is_dataset_stated = reader.is_set_by_user("eval_dataset_name");
    if (!eval.is_dataset_stated && data.is_dataset_stated) {
      eval.dataset = data.dataset;
      eval.is_dataset_stated = true;
    }
  }
  eval.is_stated = reader.is_set_by_user("eval_interval") || train.steps == 0;
  return texts;
}

void warn_of_unread_text_keys(SettingsReader& reader, const std::string& dataset_type,
                              std::vector<std::string>& warnings) {
  for (const TextKey& key : kTextKeys) {
    if (!reader.is_set_by_user(key.name)) continue;
    const std::string value = text_of(reader, key.name);
    if (value.empty() || value == key.usual) continue;
    if (is_text(dataset_type) && absl::StrContains(av(key.types), dataset_type)) continue;
    warnings.push_back(absl::StrCat(av(key.name), "=", show(value),
                                    " has no effect: dataset_type is ", dataset_type));
  }
}

}  // namespace muster::jobspec
