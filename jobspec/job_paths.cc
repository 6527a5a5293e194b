#include "jobspec/job_paths.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/objects/object_url.h"
#include "common/text/absl_view.h"
#include "trainer_core/base/data_paths.h"
#include "trainer_core/base/eval_task_files.h"

namespace muster::jobspec {
namespace {

// Makes each folder of a dataset_path absolute.
absl::Status make_absolute(const LaunchOptions& options, std::string& dataset_path) {
  auto shares = trainer::parse_data_paths(dataset_path);
  if (!shares.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("dataset_path=", show(dataset_path), ": ", shares.status().message()));
  }
  for (trainer::DataShare& share : *shares) {
    absl::StatusOr<std::string> full = absolute_path("dataset_path", share.folder, options);
    if (!full.ok()) return full.status();
    share.folder = *std::move(full);
  }
  dataset_path = trainer::data_paths_text(*shares);
  return absl::OkStatus();
}

// Makes the file of each task of eval_tasks absolute.
absl::Status make_tasks_absolute(const LaunchOptions& options, std::string& eval_tasks) {
  auto tasks = trainer::parse_eval_tasks(eval_tasks);
  if (!tasks.ok()) return tasks.status();
  for (trainer::EvalTaskFile& task : *tasks) {
    if (is_remote(task.file)) {
      return absl::InvalidArgumentError(
          absl::StrCat("eval_tasks: ", task.task, "=", task.file,
                       ": give a path of the file system; every rank reads the file"));
    }
    absl::StatusOr<std::string> full = absolute_path("eval_tasks", task.file, options);
    if (!full.ok()) return full.status();
    task.file = *std::move(full);
  }
  eval_tasks = trainer::eval_tasks_text(*tasks);
  return absl::OkStatus();
}

// `base`: the job's output folder, which has the results unless eval_output states another folder.
absl::Status read_eval_output(SettingsReader& reader, const LaunchOptions& options,
                              const std::string& base, trainer::EvalConfig& eval) {
  reader.read("eval_output", eval.output);
  if (is_remote(eval.output)) {
    return absl::InvalidArgumentError(
        absl::StrCat("eval_output=", show(eval.output), ": give a path of the file system"));
  }
  absl::StatusOr<std::string> full = absolute_path("eval_output", eval.output, options);
  if (!full.ok()) return full.status();
  eval.output = *std::move(full);
  if (eval.tasks.empty()) eval.output.clear();
  if (!eval.tasks.empty() && eval.output.empty() && !is_remote(base))
    eval.output = absl::StrCat(base, "/evaluations");
  return reader.status();
}

}  // namespace

absl::StatusOr<std::string> absolute_path(std::string_view key, const std::string& path,
                                          const LaunchOptions& options) {
  if (path.empty()) return path;
  if (is_remote(path)) {
    if (!is_object_url(path)) {
      return absl::InvalidArgumentError(
          absl::StrCat(av(key), "=", show(path), ": only s3:// and gs:// addresses are supported; ",
                       "give one of them, or a path of the file system"));
    }
    const auto url = parse_object_url(path);
    if (!url.ok())
      return absl::InvalidArgumentError(absl::StrCat(av(key), "=", url.status().message()));
    return url->text();
  }
  std::filesystem::path full = path;
  if ((path == "~" || absl::StartsWith(path, "~/")) && !options.home.empty()) {
    full = std::filesystem::path(options.home) / path.substr(std::min<size_t>(2, path.size()));
  } else if (full.is_relative()) {
    full = std::filesystem::path(options.working_directory) / full;
  }
  std::string text = full.lexically_normal().string();
  if (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

absl::StatusOr<std::string> saved_plan_path(const std::string& path, const LaunchOptions& options) {
  if (is_remote(path)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kSavedPlanKey, "=", show(path),
                     ": give a path of the file system; every rank reads the file"));
  }
  return absolute_path(kSavedPlanKey, path, options);
}

absl::StatusOr<std::string> read_paths(SettingsReader& reader, const LaunchOptions& options,
                                       trainer::TrainConfig& train) {
  if (!reader.status().ok()) return reader.status();
  std::string base;
  reader.read("base_output_directory", base);
  reader.read("metrics_file", train.metrics_file);
  reader.read("tokenizer_path", train.tokenizer_path);
  reader.read("tokenizer_type", train.tokenizer_type);
  reader.read("load_parameters_path", train.load_parameters_path);
  if (train.model.lora.enabled()) reader.read("lora_restore_path", train.lora_restore_path);
  const std::pair<std::string_view, std::string*> paths[] = {
      {"base_output_directory", &base},
      {"metrics_file", &train.metrics_file},
      {"tokenizer_path", &train.tokenizer_path},
      {"load_parameters_path", &train.load_parameters_path},
      {"lora_restore_path", &train.lora_restore_path},
      {"eval_dataset_path", &train.eval.dataset_path}};
  if (is_remote(train.metrics_file)) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics_file=", show(train.metrics_file),
                     ": the file grows with each step, and objects cannot; give a path of the "
                     "file system"));
  }
  for (const auto& [key, path] : paths) {
    absl::StatusOr<std::string> full = absolute_path(key, *path, options);
    if (!full.ok()) return full.status();
    *path = *std::move(full);
  }
  if (auto status = make_absolute(options, train.dataset_path); !status.ok()) return status;
  reader.read(kSavedPlanKey, train.compiled_trainstep_file);
  auto saved_plan = saved_plan_path(train.compiled_trainstep_file, options);
  if (!saved_plan.ok()) return saved_plan.status();
  train.compiled_trainstep_file = *std::move(saved_plan);
  if (base.empty()) base = options.working_directory;
  if (auto status = make_tasks_absolute(options, train.eval.tasks); !status.ok()) return status;
  const std::string folder = absl::StrCat(base, base == "/" ? "" : "/", train.run_name);
  if (auto status = read_eval_output(reader, options, folder, train.eval); !status.ok())
    return status;
  return folder;
}

}  // namespace muster::jobspec
