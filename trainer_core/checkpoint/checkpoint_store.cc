#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/errno_status.h"
#include "common/file_write.h"
#include "common/free_space.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/publish.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

// What is known of a disk that was full a moment ago: the temporary folder is gone by now.
std::string missing_room(const std::string& directory, uint64_t needed) {
  constexpr double kMiB = 1 << 20;
  const std::optional<uint64_t> free = free_space_bytes(directory);
  if (!free || *free >= needed) return "";  // a quota, or somebody else has made room
  return absl::StrFormat(
      " (it takes %.1f MiB and %.1f MiB are free on that disk: %.1f MiB are missing)",
      static_cast<double>(needed) / kMiB, static_cast<double>(*free) / kMiB,
      static_cast<double>(needed - *free) / kMiB);
}

}  // namespace

absl::Status CheckpointStore::open(const CheckpointOwner& owner) {
  if (auto status = prepare(); !status.ok()) return status;
  auto fence = DirectoryFence::take(directory_, owner);
  if (!fence.ok()) return fence.status();
  fence_ = std::move(*fence);
  remove_leftovers();
  return absl::OkStatus();
}

absl::Status CheckpointStore::still_owner() const {
  return fence_ != nullptr ? fence_->check() : absl::OkStatus();
}

std::string CheckpointStore::temporary_name(const std::string& what) const {
  const CheckpointOwner owner = fence_ != nullptr ? fence_->owner() : CheckpointOwner{};
  return absl::StrCat(directory_, "/", kTemporaryPrefix, what, "-", owner.job, "-", owner.attempt);
}

void CheckpointStore::remove_leftovers() const {
  if (!still_owner().ok()) return;
  restore_asides(directory_);
  const auto names = list_directory(directory_);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    std::error_code ignored;
    if (name.starts_with(kTemporaryPrefix)) fs::remove_all(fs::path(directory_) / name, ignored);
  }
}

absl::Status CheckpointStore::prepare() const {
  if (auto status = make_folders(directory_); !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("checkpoint directory ", directory_, ": ", status.message()));
  }
  // The process id makes a preflight beside a running job harmless.
  const std::string probe = absl::StrCat(directory_, "/", kTemporaryPrefix, "probe-", getpid());
  const absl::Status status = write_file_atomically(probe, "probe");
  unlink(probe.c_str());
  if (status.ok()) return absl::OkStatus();
  return absl::Status(status.code(), absl::StrCat("checkpoint directory ", directory_,
                                                  " cannot be written: ", status.message()));
}

absl::Status CheckpointStore::write_folder(const std::string& temporary, const CheckpointInfo& info,
                                           const CheckpointLayout& layout,
                                           const CheckpointBlocks& blocks) const {
  constexpr int kOnlyWriter = 0;
  std::error_code error;
  fs::remove_all(temporary, error);
  fs::create_directories(temporary, error);
  if (error) return errno_status(error.value(), absl::StrCat("cannot make ", temporary));
  Manifest manifest{info, {}};
  manifest.info.optimizer = layout.optimizer;
  const auto write = [&](CheckpointPart part, const std::vector<TensorRow>& rows,
                         std::span<const float> block) {
    auto files = write_boxes(temporary, part, kOnlyWriter, whole_boxes(rows), block, file_bytes_);
    if (files.ok()) std::ranges::move(*files, std::back_inserter(manifest.files));
    return files.status();
  };
  if (auto status = write(CheckpointPart::kModel, layout.params, blocks.params); !status.ok())
    return status;
  if (auto status = write(CheckpointPart::kOptimizer, layout.state, blocks.state); !status.ok())
    return status;
  // The last file: the folder's sync that comes with it holds for the others' names, too.
  return write_file_atomically(absl::StrCat(temporary, "/", kManifestFile), manifest_text(manifest),
                               {.durability = Durability::kPowerLoss});
}

absl::Status CheckpointStore::save(const CheckpointInfo& info, const CheckpointLayout& layout,
                                   const CheckpointBlocks& blocks,
                                   std::vector<std::string>& notes) const {
  const std::string temporary = temporary_name(absl::StrCat(info.step));
  absl::Status status = still_owner();
  if (status.ok()) {
    status = write_folder(temporary, info, layout, blocks);
    // A new owner removes the temporary folder of an old one: that it did is the error to tell.
    if (auto owner = still_owner(); !owner.ok()) status = owner;
    if (status.ok()) status = publish_folder(temporary, directory_, absl::StrCat(info.step));
  }
  if (!status.ok()) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    return absl::Status(
        status.code(),
        absl::StrCat(
            "checkpoint of step ", info.step, " is not saved: ", status.message(),
            absl::IsResourceExhausted(status) ? missing_room(directory_, layout.bytes()) : ""));
  }
  if (auto removed = remove_old(); !removed.ok()) notes.emplace_back(removed.message());
  return absl::OkStatus();
}

uint64_t CheckpointLayout::bytes() const {
  int64_t elements = 0;
  for (const std::vector<TensorRow>* rows : {&params, &state}) {
    for (const TensorRow& row : *rows) elements += row.elements();
  }
  return static_cast<uint64_t>(elements) * sizeof(float);
}

std::string CheckpointStore::folder(int64_t step) const {
  return absl::StrCat(directory_, "/", step);
}

absl::StatusOr<std::vector<int64_t>> CheckpointStore::steps() const {
  const auto names = list_directory(directory_);
  if (absl::IsNotFound(names.status())) return std::vector<int64_t>();
  if (!names.ok()) return names.status();
  std::vector<int64_t> steps;
  for (const std::string& name : *names) {
    int64_t step = 0;
    const auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), step);
    if (problem == std::errc() && end == name.data() + name.size() && step >= 0)
      steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

absl::Status CheckpointStore::remove_old() const {
  if (keep_ < 0) return absl::OkStatus();
  std::vector<int64_t> whole;
  const auto found = steps();
  if (!found.ok()) return found.status();
  for (const int64_t step : *found) {
    if (verify_checkpoint(folder(step), /*checksums=*/false).ok()) whole.push_back(step);
  }
  const auto keep = static_cast<size_t>(std::max<int64_t>(keep_, 1));
  for (size_t i = 0; i + keep < whole.size(); ++i) {
    if (auto status = still_owner(); !status.ok()) return status;
    // Renamed first: a process that dies while it removes leaves no torn folder with a number.
    const std::string doomed = temporary_name(absl::StrCat("removed-", whole[i]));
    std::error_code error;
    fs::remove_all(doomed, error);
    fs::rename(folder(whole[i]), doomed, error);
    if (error == std::errc::no_such_file_or_directory) continue;  // gone is what was wanted
    if (error)
      return errno_status(error.value(),
                          absl::StrCat("cannot remove old checkpoint ", folder(whole[i])));
    fs::remove_all(doomed, error);
  }
  return absl::OkStatus();
}

// The newest checkpoint that `use` takes: a status of a manifest.
template <class Use>
absl::StatusOr<std::optional<CheckpointInfo>> CheckpointStore::newest_that(
    const Use& use, std::vector<std::string>& notes) const {
  const auto found = steps();
  if (!found.ok()) return absl::FailedPreconditionError(found.status().message());
  std::vector<std::string> passed_over;
  for (auto step = found->rbegin(); step != found->rend(); ++step) {
    auto manifest = read_manifest(folder(*step));
    absl::Status status = manifest.status();
    if (status.ok() && manifest->info.step != *step)
      status = absl::DataLossError(absl::StrCat("its manifest says step ", manifest->info.step));
    if (status.ok()) status = use(*manifest);
    if (status.ok()) {
      for (const std::string& line : passed_over)
        notes.push_back(absl::StrCat(line, "; ", folder(*step), " takes its place"));
      return std::optional(std::move(manifest->info));
    }
    if (absl::IsInvalidArgument(status)) return status;  // of another model, and says so
    // Only damage is passed over: to start from an older one for another reason would throw steps away in silence.
    if (!absl::IsDataLoss(status)) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot use checkpoint ", folder(*step), ": ", status.message()));
    }
    passed_over.push_back(
        absl::StrCat("checkpoint ", folder(*step), " is passed over: ", status.message()));
  }
  if (found->empty()) return std::nullopt;
  notes.insert(notes.end(), passed_over.begin(), passed_over.end());
  return absl::FailedPreconditionError(
      absl::StrCat("no checkpoint in ", directory_, " is whole (", passed_over.back(),
                   "); to start anew, move that folder away or set another run_name"));
}

absl::StatusOr<std::optional<CheckpointInfo>> CheckpointStore::newest(
    std::vector<std::string>& notes, bool checksums) const {
  return newest_that(
      [&](const Manifest& manifest) {
        return checksums ? verify_checkpoint(manifest.info.folder, true).status()
                         : absl::OkStatus();
      },
      notes);
}

absl::StatusOr<std::optional<CheckpointInfo>> CheckpointStore::restore_newest(
    const CheckpointLayout& layout, const CheckpointBlocks& blocks,
    std::vector<std::string>& notes) const {
  return newest_that(
      [&](const Manifest& manifest) {
        auto status = check_tensors(manifest, layout);
        if (status.ok()) status = read_all(manifest, layout, blocks);
        return status;
      },
      notes);
}

}  // namespace muster::trainer
