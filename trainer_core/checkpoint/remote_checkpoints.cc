#include "trainer_core/checkpoint/remote_checkpoints.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "common/random/fnv.h"
#include "common/text/absl_view.h"
#include "common/time/time.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/names.h"
#include "trainer_core/checkpoint/publish.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kOwnerTextMax = 4096;
// Initialized when the program is loaded.
const int64_t process_begun_ns = wall_clock_unix_ns();
constexpr std::string_view kFileEnd = ".safetensors";

// Returns 12 for "12/manifest.json"; nullopt for a name outside a checkpoint's folder.
std::optional<int64_t> step_of(std::string_view name) {
  const size_t slash = name.find('/');
  return slash == name.npos ? std::nullopt : step_of_folder(name.substr(0, slash));
}

bool is_number(std::string_view text, std::string_view digits) {
  return !text.empty() && text.find_first_not_of(digits) == text.npos;
}

// Returns whether upload() may have written an object of this name: "manifest.json",
// "model-00000-00000-<save>.safetensors", or the latter without <save>, as a copied checkpoint has.
bool is_own_file(std::string_view name) {
  if (name == kManifestFile) return true;
  if (!name.ends_with(kFileEnd)) return false;
  const std::vector<absl::string_view> parts =
      absl::StrSplit(av(name.substr(0, name.size() - kFileEnd.size())), '-');
  constexpr std::string_view digit = "0123456789", hexadecimal = "0123456789abcdefABCDEF";
  return (parts.size() == 3 || parts.size() == 4) &&
         std::ranges::find(kCheckpointPartNames, sv(parts[0])) != std::end(kCheckpointPartNames) &&
         is_number(sv(parts[1]), digit) && is_number(sv(parts[2]), digit) &&
         (parts.size() == 3 || is_number(sv(parts[3]), hexadecimal));
}

bool has_own_file(const std::vector<StoredObject>& objects) {
  return std::ranges::any_of(objects,
                             [](const StoredObject& object) { return is_own_file(object.name); });
}

// Returns the time that a listing states, in seconds since 1970; nullopt if it is no time.
std::optional<time_t> time_of(const std::string& changed) {
  std::tm local{};
  if (strptime(changed.c_str(), "%Y-%m-%d %H:%M:%S", &local) == nullptr) return std::nullopt;
  local.tm_isdst = -1;
  return mktime(&local);
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

RemoteCheckpoints::RemoteCheckpoints(std::string url, StoreTool tool)
    : url_(std::move(url)),
      tool_(std::move(tool)),
      staging_(folder_of_url(object_cache_folder(), url_)),
      fetched_(absl::StrCat(staging_, "/restore")) {}

ObjectStore RemoteCheckpoints::store(Patience patience) const {
  const bool saves = patience == Patience::kSave;
  return ObjectStore({.within = saves ? kUploadWithin : start_within_,
                      .also_permanent = saves,
                      .within_hurry = kLastUploadWithin,
                      .is_hurried = [this] { return hurried_.load(); },
                      // A stop signals the group of the rank, and waits for the last save.
                      .survives_signals = saves,
                      // A save may wait for a slow listing; training continues meanwhile.
                      .silence = saves ? kStoreWarningInterval : kStoreSilence},
                     tool_);
}

std::string RemoteCheckpoints::url_of(int64_t step) const { return absl::StrCat(url_, "/", step); }

absl::Status RemoteCheckpoints::make_staging() const { return make_synced_folders(staging_); }

absl::Status RemoteCheckpoints::probe() const {
  if (auto status = make_staging(); !status.ok()) return status;
  const std::string name = absl::StrCat(".probe-", getpid(), "-", wall_clock_unix_ns());
  const std::string file = absl::StrCat(staging_, "/", name);
  const absl::Cleanup remove_file = [&] { unlink(file.c_str()); };
  if (auto status = write_file_atomically(file, "probe\n"); !status.ok()) return status;
  const ObjectStore patient = store(Patience::kStart);
  // A read notices sooner than a transfer that the store does not answer.
  if (auto status = patient.list_names(url_).status(); !status.ok()) return status;
  if (auto status = patient.upload(staging_, {name}, url_); !status.ok()) return status;
  return patient.remove(absl::StrCat(url_, "/", name));
}

absl::Status RemoteCheckpoints::take(const CheckpointOwner& owner) {
  if (auto status = check_not_late(owner); !status.ok()) return status;
  owner_ = owner;
  if (owner_.incarnation == 0) owner_.incarnation = static_cast<uint64_t>(wall_clock_unix_ns());
  owner_text_ = text_of(owner_);
  return write_owner(Patience::kStart);
}

// A store does not show whether the owner is running. If a higher attempt wrote OWNER after this
// process had begun, this process is late; otherwise the coordinator has lost its state and numbers
// attempts from 1 again (owner.h).
absl::Status RemoteCheckpoints::check_not_late(const CheckpointOwner& owner) const {
  const auto present = read_owner(Patience::kStart);
  if (!present.ok()) return present.status();
  const auto other = parse_owner(*present);
  if (!other || other->job != owner.job || other->attempt <= owner.attempt) return absl::OkStatus();
  const auto objects = store(Patience::kStart).list(absl::StrCat(url_, "/", kOwnerFile));
  if (!objects.ok()) return objects.status();
  const auto written = objects->empty() ? std::nullopt : time_of((*objects)[0].changed);
  constexpr int64_t kNs = 1'000'000'000;
  return written && *written >= process_begun_ns / kNs ? not_the_owner(url_, other, owner)
                                                       : absl::OkStatus();
}

absl::Status RemoteCheckpoints::write_owner(Patience patience) const {
  if (auto status = make_staging(); !status.ok()) return status;
  const std::string folder = absl::StrCat(staging_, "/owner-", getpid());
  if (auto status = make_synced_folders(folder); !status.ok()) return status;
  const absl::Cleanup remove_folder = [&] { (void)remove_local(folder); };
  if (auto status = write_file_atomically(absl::StrCat(folder, "/", kOwnerFile), owner_text_);
      !status.ok())
    return status;
  return store(patience).upload(folder, {kOwnerFile}, url_);
}

absl::StatusOr<std::string> RemoteCheckpoints::read_owner(Patience patience) const {
  auto text = store(patience).read(absl::StrCat(url_, "/", kOwnerFile), kOwnerTextMax);
  if (absl::IsNotFound(text.status())) return "";
  return text;
}

absl::StatusOr<std::string> RemoteCheckpoints::owner_text() const {
  return read_owner(Patience::kStart);
}

absl::Status RemoteCheckpoints::check_owner(Patience patience) const {
  if (owner_text_.empty()) return absl::OkStatus();  // this process has not taken the directory
  const auto present = read_owner(patience);
  if (!present.ok()) return present.status();
  if (*present == owner_text_) return absl::OkStatus();
  if (present->empty()) return write_owner(patience);
  const auto other = parse_owner(*present);
  // Two attempts have opened the directory at the same moment, and the older attempt was the last
  // to write OWNER.
  if (other && other->job == owner_.job && other->attempt < owner_.attempt)
    return write_owner(patience);
  return not_the_owner(url_, other, owner_);
}

absl::StatusOr<std::vector<int64_t>> RemoteCheckpoints::list(Patience patience) {
  auto objects = store(patience).list(url_);
  if (!objects.ok()) return objects.status();
  objects_.emplace();
  for (StoredObject& object : *objects) {
    const auto step = step_of(object.name);
    if (!step) continue;
    object.name.erase(0, object.name.find('/') + 1);
    (*objects_)[*step].push_back(std::move(object));
  }
  std::vector<int64_t> steps;
  for (const auto& [step, files] : *objects_) {
    if (has_manifest(files)) steps.push_back(step);
  }
  return steps;
}

absl::StatusOr<Manifest> RemoteCheckpoints::read_manifest_of(int64_t step) const {
  const std::string text_url = absl::StrCat(url_of(step), "/", kManifestFile);
  const auto text = store(Patience::kStart).read(text_url, kManifestBytesMax);
  if (absl::IsNotFound(text.status()))
    return absl::DataLossError(absl::StrCat("it has no ", kManifestFile));
  if (!text.ok()) return text.status();
  auto manifest = parse_manifest(*text);
  if (!manifest.ok()) return manifest.status();
  // A replaced checkpoint has another folder.
  manifest->info.folder = absl::StrCat(fetched_, "/", step, "-", absl::Hex(fnv1a(*text)));
  return manifest;
}

absl::StatusOr<Manifest> RemoteCheckpoints::fetch_manifest(int64_t step) {
  auto manifest = read_manifest_of(step);
  if (!manifest.ok()) return manifest;
  if (auto status = check_object_sizes(*manifest); !status.ok()) return status;
  return manifest;
}

absl::StatusOr<Manifest> RemoteCheckpoints::fetch_same_manifest(int64_t step,
                                                                const std::string& checksum) {
  auto manifest = fetch_manifest(step);
  if (!manifest.ok() || manifest->checksum == checksum) return manifest;
  return absl::FailedPreconditionError(
      absl::StrCat(url_of(step), " was replaced while the ranks read it"));
}

absl::Status RemoteCheckpoints::check_object_sizes(const Manifest& manifest) const {
  if (!objects_) return absl::OkStatus();
  const auto listed = objects_->find(manifest.info.step);
  const std::vector<StoredObject> none;
  const std::vector<StoredObject>& objects = listed == objects_->end() ? none : listed->second;
  for (const StoredFile& file : manifest.files) {
    const auto found = std::ranges::find(objects, file.name, &StoredObject::name);
    if (found == objects.end()) return absl::DataLossError(absl::StrCat("it has no ", file.name));
    if (found->bytes != file.digest.bytes)
      return absl::DataLossError(absl::StrCat(file.name, " has ", found->bytes,
                                              " bytes, the manifest states ", file.digest.bytes));
  }
  return absl::OkStatus();
}

absl::Status RemoteCheckpoints::fetch_files(const Manifest& manifest,
                                            const std::vector<std::string>& names) const {
  if (names.empty()) return absl::OkStatus();
  if (auto status = make_synced_folders(manifest.info.folder); !status.ok()) return status;
  std::vector<StoredObject> objects;
  for (const StoredFile& file : manifest.files) {
    if (std::ranges::find(names, file.name) != names.end())
      objects.push_back({.name = file.name, .bytes = file.digest.bytes, .changed = ""});
  }
  FetchEvents events;
  events.on_progress = [this, before = uint64_t{0}](uint64_t done, uint64_t) mutable {
    if (std::exchange(before, done) < done && on_fetch_) on_fetch_();
  };
  events.on_wait = [this](const std::string&) {
    if (on_fetch_) on_fetch_();
  };
  return fetch_objects(store(Patience::kStart), url_of(manifest.info.step), objects,
                       manifest.info.folder, events);
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
  uint64_t sent = 0;
  const absl::Status status = store(Patience::kSave)
                                  .upload(
                                      folder, names, url_of(step),
                                      [&] {
                                        if (on_upload_) on_upload_(sent);
                                        return true;
                                      },
                                      [&](uint64_t bytes) { sent = std::max(sent, bytes); });
  for (const std::string& name : names) unlink(absl::StrCat(folder, "/", name).c_str());
  return status;
}

absl::Status RemoteCheckpoints::remove(int64_t step, const std::vector<StoredObject>& objects) {
  if (auto status = check_owner(Patience::kStart); !status.ok()) return status;
  std::vector<std::string> names;
  for (const StoredObject& object : objects) {
    if (is_own_file(object.name) && object.name != kManifestFile) names.push_back(object.name);
  }
  const ObjectStore patient = store(Patience::kStart);
  absl::Status status = patient.remove(absl::StrCat(url_of(step), "/", kManifestFile));
  if (status.ok()) status = patient.remove_files(url_of(step), names);
  if (status.ok() || absl::IsAborted(status)) return status;
  return absl::Status(status.code(), absl::StrCat("cannot remove checkpoint ", url_of(step), ": ",
                                                  status.message()));
}

absl::Status RemoteCheckpoints::remove_incomplete() {
  if (auto steps = list(); !steps.ok()) return steps.status();
  for (const auto& [step, objects] : *objects_) {
    if (has_manifest(objects) || !has_own_file(objects)) continue;
    if (auto status = remove(step, objects); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Returns whether a listed checkpoint is complete. Reads a manifest again only if it has changed.
absl::StatusOr<bool> RemoteCheckpoints::is_complete(int64_t step) {
  const std::vector<StoredObject>& objects = objects_->at(step);
  const StoredObject& manifest_object =
      *std::ranges::find(objects, kManifestFile, &StoredObject::name);
  auto known = manifests_.find(step);
  if (known == manifests_.end() || known->second.object != manifest_object) {
    auto manifest = read_manifest_of(step);
    // Another error shows nothing about the checkpoint.
    if (absl::IsDataLoss(manifest.status()) || absl::IsFailedPrecondition(manifest.status()))
      return false;
    if (!manifest.ok()) return manifest.status();
    for (StoredFile& file : manifest->files) file.boxes.clear();
    manifest->info.config = manifest->info.data = nullptr;
    known = manifests_.insert_or_assign(step, KnownManifest{manifest_object, *std::move(manifest)})
                .first;
  }
  const Manifest& manifest = known->second.manifest;
  return manifest.info.step == step && check_object_sizes(manifest).ok();
}

absl::Status RemoteCheckpoints::remove_old(int64_t newest, int64_t keep) {
  const auto steps = list();
  if (!steps.ok()) return steps.status();
  const auto kept = static_cast<size_t>(std::max<int64_t>(keep, 1));
  std::vector<int64_t> complete;
  int64_t best = -1;
  const auto candidates =
      std::ranges::subrange(steps->begin(), std::ranges::upper_bound(*steps, newest));
  if (keep >= 0 && candidates.size() > kept) {
    for (const int64_t step : candidates) {
      const auto is_good = is_complete(step);
      if (!is_good.ok()) return is_good.status();
      if (!*is_good) continue;
      complete.push_back(step);
      if (manifests_.at(step).manifest.info.evaluation.is_best(step)) best = step;
    }
  }
  for (size_t i = 0; i + kept < complete.size(); ++i) {
    if (complete[i] == best) continue;
    if (auto status = remove(complete[i], objects_->at(complete[i])); !status.ok()) return status;
    manifests_.erase(complete[i]);
  }
  for (const auto& [step, objects] : *objects_) {
    if (step >= newest || has_manifest(objects) || !has_own_file(objects)) continue;
    if (auto status = remove(step, objects); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace muster::trainer
