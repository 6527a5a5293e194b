#include "trainer_core/checkpoint/remote_checkpoints.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <string_view>
#include <system_error>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "common/errno_status.h"
#include "common/file_write.h"
#include "common/time.h"
#include "trainer_core/base/fnv.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/publish.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kOwnerTextMax = 4096;
constexpr std::string_view kFileEnd = ".safetensors";

// "12" of "12/manifest.json"; -1 for another name.
int64_t step_of(std::string_view name) {
  const std::string_view folder = name.substr(0, name.find('/'));
  int64_t step = -1;
  const auto [end, problem] = std::from_chars(folder.data(), folder.data() + folder.size(), step);
  const bool is_step = problem == std::errc() && end == folder.data() + folder.size() &&
                       folder.size() < name.size() && step >= 0;
  return is_step ? step : -1;
}

bool has_manifest(const std::vector<StoredObject>& objects) {
  return std::ranges::any_of(
      objects, [](const StoredObject& object) { return object.name == kManifestFile; });
}

absl::Status remove_local(const std::string& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  return error ? file_status(error.value(), absl::StrCat("cannot remove ", folder))
               : absl::OkStatus();
}

}  // namespace

RemoteCheckpoints::RemoteCheckpoints(std::string url)
    : url_(std::move(url)),
      staging_(folder_of_url(object_cache_folder(), url_)),
      // Beside those of other processes: a preflight may run next to the ranks of a node.
      fetched_(absl::StrCat(staging_, "/restore")) {}

RemoteCheckpoints::~RemoteCheckpoints() = default;

ObjectStore RemoteCheckpoints::store(Patience patience) const {
  const bool saves = patience == Patience::kSave;
  return ObjectStore(
      {.within = saves ? kUploadWithin : kRestoreWithin,
       .also_permanent = saves,
       .within_hurry = kLastUploadWithin,
       .is_hurried = [this] { return hurried_.load(); },
       .warn = [](const std::string& text) { std::cerr << "warning: " << text << std::endl; }});
}

std::string RemoteCheckpoints::url_of(int64_t step) const { return absl::StrCat(url_, "/", step); }

absl::Status RemoteCheckpoints::make_staging() const { return make_folders(staging_); }

absl::Status RemoteCheckpoints::probe() const {
  if (auto status = make_staging(); !status.ok()) return status;
  const std::string name = absl::StrCat(".probe-", getpid(), "-", wall_clock_unix_ns());
  const std::string file = absl::StrCat(staging_, "/", name);
  const absl::Cleanup remove_file = [&] { unlink(file.c_str()); };
  if (auto status = write_file_atomically(file, "probe\n"); !status.ok()) return status;
  const ObjectStore patient = store(Patience::kStart);
  if (auto status = patient.upload(staging_, {name}, url_); !status.ok()) return status;
  return patient.remove(absl::StrCat(url_, "/", name));
}

absl::Status RemoteCheckpoints::take(const CheckpointOwner& owner) {
  owner_ = owner;
  if (owner_.incarnation == 0) owner_.incarnation = static_cast<uint64_t>(wall_clock_unix_ns());
  owner_text_ = text_of(owner_);
  if (auto status = make_staging(); !status.ok()) return status;
  const std::string folder = absl::StrCat(staging_, "/owner-", getpid());
  if (auto status = make_folders(folder); !status.ok()) return status;
  const absl::Cleanup remove_folder = [&] { (void)remove_local(folder); };
  if (auto status = write_file_atomically(absl::StrCat(folder, "/", kOwnerFile), owner_text_);
      !status.ok())
    return status;
  return store(Patience::kStart).upload(folder, {kOwnerFile}, url_);
}

absl::StatusOr<std::string> RemoteCheckpoints::read_owner(Patience patience) const {
  auto text = store(patience).read(absl::StrCat(url_, "/", kOwnerFile), kOwnerTextMax);
  if (absl::IsNotFound(text.status())) return "";
  return text;
}

absl::StatusOr<std::string> RemoteCheckpoints::owner_text() const {
  return read_owner(Patience::kStart);
}

absl::Status RemoteCheckpoints::check_owner() const {
  if (owner_text_.empty()) return absl::OkStatus();  // this process has not taken the directory
  const auto present = read_owner(Patience::kSave);
  if (!present.ok()) return present.status();
  if (*present == owner_text_ || present->empty()) return absl::OkStatus();
  const auto other = parse_owner(*present);
  // Both opened the directory at one moment, and the older attempt came last.
  if (other && other->job == owner_.job && other->attempt < owner_.attempt) return absl::OkStatus();
  return not_the_owner(url_, other, owner_);
}

absl::StatusOr<std::vector<int64_t>> RemoteCheckpoints::list(Patience patience) {
  auto objects = store(patience).list(url_);
  if (!objects.ok()) return objects.status();
  objects_.clear();
  for (StoredObject& object : *objects) {
    const int64_t step = step_of(object.name);
    if (step < 0) continue;
    object.name.erase(0, object.name.find('/') + 1);
    objects_[step].push_back(std::move(object));
  }
  std::vector<int64_t> steps;
  for (const auto& [step, files] : objects_) {
    if (has_manifest(files)) steps.push_back(step);
  }
  return steps;
}

absl::StatusOr<Manifest> RemoteCheckpoints::fetch_manifest(int64_t step) {
  const std::string text_url = absl::StrCat(url_of(step), "/", kManifestFile);
  const auto text = store(Patience::kStart).read(text_url, kManifestBytesMax);
  if (absl::IsNotFound(text.status()))
    return absl::DataLossError(absl::StrCat("it has no ", kManifestFile));
  if (!text.ok()) return text.status();
  auto manifest = parse_manifest(*text);
  if (!manifest.ok()) return manifest.status();
  // A replaced checkpoint has another folder.
  manifest->info.folder = absl::StrCat(fetched_, "/", step, "-", absl::Hex(fnv1a(*text)));
  if (auto status = check_sizes(*manifest); !status.ok()) return status;
  return manifest;
}

absl::StatusOr<Manifest> RemoteCheckpoints::fetch_same_manifest(int64_t step,
                                                                const std::string& checksum) {
  auto manifest = fetch_manifest(step);
  if (!manifest.ok() || manifest->checksum == checksum) return manifest;
  return absl::FailedPreconditionError(
      absl::StrCat(url_of(step), " was replaced while the ranks read it"));
}

absl::Status RemoteCheckpoints::check_sizes(const Manifest& manifest) const {
  const auto listed = objects_.find(manifest.info.step);
  if (listed == objects_.end()) return absl::OkStatus();
  for (const StoredFile& file : manifest.files) {
    const auto found = std::ranges::find(listed->second, file.name, &StoredObject::name);
    if (found == listed->second.end())
      return absl::DataLossError(absl::StrCat("it has no ", file.name));
    if (found->bytes != file.digest.bytes)
      return absl::DataLossError(absl::StrCat(file.name, " has ", found->bytes,
                                              " bytes, the manifest states ", file.digest.bytes));
  }
  return absl::OkStatus();
}

absl::Status RemoteCheckpoints::fetch_files(const Manifest& manifest,
                                            const std::vector<std::string>& names) const {
  if (names.empty()) return absl::OkStatus();
  if (auto status = make_folders(manifest.info.folder); !status.ok()) return status;
  std::vector<StoredObject> objects;
  for (const StoredFile& file : manifest.files) {
    if (std::ranges::find(names, file.name) != names.end())
      objects.push_back({.name = file.name, .bytes = file.digest.bytes, .changed = ""});
  }
  return fetch_objects(store(Patience::kStart), url_of(manifest.info.step), objects,
                       manifest.info.folder);
}

void RemoteCheckpoints::drop_fetched() const { (void)remove_local(fetched_); }

absl::Status RemoteCheckpoints::rename_files(const std::string& folder, const std::string& save,
                                             std::vector<StoredFile>& files) {
  for (StoredFile& file : files) {
    std::string name = file.name.substr(0, file.name.size() - kFileEnd.size());
    absl::StrAppend(&name, "-", save, kFileEnd.data());
    std::error_code error;
    fs::rename(fs::path(folder) / file.name, fs::path(folder) / name, error);
    if (error) return file_status(error.value(), absl::StrCat("cannot rename ", file.name));
    file.name = std::move(name);
  }
  return absl::OkStatus();
}

absl::Status RemoteCheckpoints::upload(const std::string& folder,
                                       const std::vector<std::string>& names, int64_t step) const {
  const absl::Status status = store(Patience::kSave).upload(folder, names, url_of(step));
  for (const std::string& name : names) unlink(absl::StrCat(folder, "/", name).c_str());
  rmdir(folder.c_str());  // by the last rank of the node
  return status;
}

absl::Status RemoteCheckpoints::remove(int64_t step) const {
  const ObjectStore patient = store(Patience::kStart);
  const absl::Status status = patient.remove(absl::StrCat(url_of(step), "/", kManifestFile));
  return status.ok() ? patient.remove_all(url_of(step)) : status;
}

absl::Status RemoteCheckpoints::remove_incomplete() {
  if (auto steps = list(); !steps.ok()) return steps.status();
  for (const auto& [step, files] : objects_) {
    if (has_manifest(files)) continue;
    if (auto status = remove(step); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status RemoteCheckpoints::remove_old(int64_t newest, int64_t keep) {
  const auto steps = list();
  if (!steps.ok()) return steps.status();
  const auto end = std::ranges::upper_bound(*steps, newest);
  const auto complete = end - steps->begin();
  const auto kept = keep < 0 ? complete : std::min<int64_t>(std::max<int64_t>(keep, 1), complete);
  std::vector<int64_t> doomed(steps->begin(), steps->begin() + (complete - kept));
  for (const auto& [step, files] : objects_) {
    if (step < newest && !has_manifest(files)) doomed.push_back(step);
  }
  for (const int64_t step : doomed) {
    if (auto status = check_owner(); !status.ok()) return status;
    if (auto status = remove(step); !status.ok())
      return absl::Status(status.code(), absl::StrCat("cannot remove old checkpoint ", url_of(step),
                                                      ": ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace muster::trainer
