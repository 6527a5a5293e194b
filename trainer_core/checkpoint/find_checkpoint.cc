#include "trainer_core/checkpoint/find_checkpoint.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/best_path.h"
#include "trainer_core/checkpoint/checkpoint.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

constexpr char kCheckpoints[] = "checkpoints";

// Returns the folder with the checkpoints of a run, or `path` itself.
std::string directory_of(const std::string& path) {
  const std::string of_run = absl::StrCat(path, "/", kCheckpoints);
  std::error_code error;
  return fs::is_directory(of_run, error) ? of_run : path;
}

absl::StatusOr<std::string> fetch_best(const std::string& run, const FetchEvents& events) {
  auto best = CheckpointStore(run, -1).best();
  if (absl::IsNotFound(best.status()))
    best = CheckpointStore(absl::StrCat(run, "/", kCheckpoints), -1).best();
  if (!best.ok()) return best.status();
  return fetch_to_cache(ObjectStore(), best->folder, events);
}

}  // namespace

absl::StatusOr<std::string> find_checkpoint(const std::string& path, Verify verify) {
  if (is_object_url(path)) {
    const auto local = fetch_checkpoint(path);
    return local.ok() ? find_checkpoint(*local, verify) : local;
  }
  const bool checksums = verify == Verify::kChecksums;
  std::error_code error;
  if (fs::exists(path + "/" + kManifestFile, error)) {
    auto info = verify_checkpoint(path, checksums);
    if (!info.ok())
      return absl::DataLossError(absl::StrCat("checkpoint ", path, ": ", info.status().message()));
    return path;
  }
  if (names_best(path)) {
    const std::string run = run_of_best(path);
    if (!fs::exists(run, error))
      return absl::NotFoundError(absl::StrCat(path, ": there is no folder ", run));
    const auto best = CheckpointStore(directory_of(run), -1).best();
    return best.ok() ? find_checkpoint(best->folder, verify) : best.status();
  }
  const std::string directory = directory_of(path);
  std::vector<std::string> notes;
  auto newest = CheckpointStore(directory, -1).newest(notes, checksums);
  if (!newest.ok()) return newest.status();
  if (!newest->has_value())
    return absl::NotFoundError(absl::StrCat("there is no checkpoint in ", directory));
  return (*newest)->folder;
}

absl::StatusOr<TrainConfig> training_of_checkpoint(const std::string& path) {
  const auto folder = find_checkpoint(path, Verify::kSizes);
  if (!folder.ok()) return folder.status();
  const auto info = verify_checkpoint(*folder, /*checksums=*/false);
  return info.ok() ? train_config_from_json(info->config) : info.status();
}

absl::StatusOr<std::string> fetch_checkpoint(const std::string& url, const FetchEvents& events) {
  for (const std::string& directory : {url, absl::StrCat(url, "/", kCheckpoints)}) {
    RemoteCheckpoints checkpoints(directory);
    const auto steps = checkpoints.list();
    if (!steps.ok()) return steps.status();
    if (!steps->empty())
      return fetch_to_cache(ObjectStore(), checkpoints.url_of(steps->back()), events);
  }
  if (names_best(url)) {
    const auto objects = ObjectStore().list(url);
    if (!objects.ok()) return objects.status();
    if (objects->empty()) return fetch_best(run_of_best(url), events);
  }
  return fetch_to_cache(ObjectStore(), url, events);
}

std::string run_folder_of(const std::string& path) {
  std::error_code error;
  fs::path folder = fs::absolute(path, error).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  if (fs::exists(folder / kManifestFile, error)) folder = folder.parent_path();
  if (folder.filename() == kCheckpoints) folder = folder.parent_path();
  return folder.string();
}

}  // namespace muster::trainer
