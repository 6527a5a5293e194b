#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include <absl/strings/str_cat.h>
#include <zlib.h>

#include "common/errno_status.h"
#include "common/file_write.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/publish.h"
#include "trainer_core/checkpoint/safetensors.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

absl::Status from_error_code(const std::error_code& error, const std::string& what) {
  return errno_status(error.value(), what);
}

std::vector<TensorToWrite> tensors_of(const std::vector<TensorRow>& rows,
                                      std::span<const float> block) {
  std::vector<TensorToWrite> tensors;
  for (const TensorRow& row : rows)
    tensors.push_back({row.name, row.shape, block.data() + row.offset});
  return tensors;
}

nlohmann::json file_entry(const char* name, const FileDigest& digest) {
  return {{"name", name}, {"bytes", digest.bytes}, {"crc32", digest.crc32}};
}

absl::Status write_folder(const std::string& folder, const CheckpointInfo& info,
                          const CheckpointLayout& layout, const CheckpointBlocks& blocks) {
  auto model =
      write_safetensors(folder + "/" + kModelFile, tensors_of(layout.params, blocks.params));
  if (!model.ok()) return model.status();
  auto optimizer =
      write_safetensors(folder + "/" + kOptimizerFile, tensors_of(layout.state, blocks.state));
  if (!optimizer.ok()) return optimizer.status();
  const nlohmann::json manifest = {
      {"format", "muster-checkpoint"},
      {"version", kCheckpointVersion},
      {"step", info.step},
      {"samples", info.samples},
      {"optimizer", layout.optimizer},
      {"config", info.config},
      {"files", {file_entry(kModelFile, *model), file_entry(kOptimizerFile, *optimizer)}}};
  // The last file: the folder's sync that comes with it holds for the others' names, too.
  return write_file_atomically(folder + "/" + kManifestFile, manifest.dump(2) + "\n",
                               {.durability = Durability::kPowerLoss});
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
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    if (entry.path().filename().string().starts_with(kTemporaryPrefix))
      leftovers.push_back(entry.path());
  }
  for (const fs::path& leftover : leftovers) fs::remove_all(leftover, error);
}

absl::Status CheckpointStore::prepare() const {
  if (auto status = make_folders(directory_); !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("checkpoint directory ", directory_, ": ", status.message()));
  }
  // The process id makes a preflight beside a running job harmless.
  const std::string probe = absl::StrCat(directory_, "/.probe-", getpid());
  const absl::Status status = write_file_atomically(probe, "probe");
  unlink(probe.c_str());
  if (status.ok()) return absl::OkStatus();
  return absl::Status(status.code(), absl::StrCat("checkpoint directory ", directory_,
                                                  " cannot be written: ", status.message()));
}

absl::Status CheckpointStore::save(const CheckpointInfo& info, const CheckpointLayout& layout,
                                   const CheckpointBlocks& blocks,
                                   std::vector<std::string>& notes) const {
  const std::string temporary = temporary_name(absl::StrCat(info.step));
  const auto not_saved = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat("checkpoint of step ", info.step,
                                                    " is not saved: ", status.message()));
  };
  if (auto status = still_owner(); !status.ok()) return not_saved(status);
  std::error_code error;
  fs::remove_all(temporary, error);
  fs::create_directories(temporary, error);
  if (error) return not_saved(from_error_code(error, absl::StrCat("cannot make ", temporary)));
  absl::Status status = write_folder(temporary, info, layout, blocks);
  // A new owner removes the temporary folder of an old one: that it did is the error to tell.
  if (auto owner = still_owner(); !owner.ok()) status = owner;
  if (status.ok()) status = publish_folder(temporary, directory_, absl::StrCat(info.step));
  if (!status.ok()) {
    fs::remove_all(temporary, error);
    return not_saved(status);
  }
  if (auto removed = remove_old(); !removed.ok()) notes.emplace_back(removed.message());
  return absl::OkStatus();
}

std::string CheckpointStore::folder(int64_t step) const {
  return absl::StrCat(directory_, "/", step);
}

absl::StatusOr<std::vector<int64_t>> CheckpointStore::steps() const {
  std::vector<int64_t> steps;
  std::error_code error;
  fs::directory_iterator entry(directory_, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int64_t step = 0;
    const auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), step);
    if (problem == std::errc() && end == name.data() + name.size() && step >= 0)
      steps.push_back(step);
  }
  if (error && error != std::errc::no_such_file_or_directory)
    return from_error_code(error, absl::StrCat("cannot read checkpoint directory ", directory_));
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
      return from_error_code(error,
                             absl::StrCat("cannot remove old checkpoint ", folder(whole[i])));
    fs::remove_all(doomed, error);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<CheckpointInfo>> CheckpointStore::newest(
    std::vector<std::string>& notes) const {
  const auto found = steps();
  if (!found.ok()) return absl::FailedPreconditionError(found.status().message());
  for (auto step = found->rbegin(); step != found->rend(); ++step) {
    auto info = verify_checkpoint(folder(*step), /*checksums=*/true);
    if (info.ok() && info->step == *step) return std::optional(*info);
    // Only damage is passed over: to start from an older one for another reason would throw steps away in silence.
    if (!info.ok() && !absl::IsDataLoss(info.status())) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot use checkpoint ", folder(*step), ": ", info.status().message()));
    }
    notes.push_back(absl::StrCat("checkpoint ", folder(*step), " is passed over: ",
                                 info.ok() ? absl::StrCat("its manifest says step ", info->step)
                                           : std::string(info.status().message())));
  }
  if (found->empty()) return std::nullopt;
  return absl::FailedPreconditionError(
      absl::StrCat("no checkpoint in ", directory_, " is whole (", notes.back(),
                   "); to start anew, move that folder away or set another run_name"));
}

}  // namespace muster::trainer
