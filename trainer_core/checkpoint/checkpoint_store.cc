#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/names.h"
#include "trainer_core/checkpoint/publish.h"
#include "trainer_core/checkpoint/visible.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

// Returns an error if this rank does not access the directory that the leader owns. `mine`: the
// owner_text() of this rank.
absl::Status compare_owner(const absl::StatusOr<std::string>& mine, const std::string& directory,
                           const std::string& leader_text) {
  if (!mine.ok()) return mine.status();
  if (*mine == leader_text) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint directory ", directory, " is another one than rank 0's: ranks that share the ",
      "storage of a model save and restore together, in a directory that all of them see"));
}

// Tests whether the directory is writable. The file has a unique name, so that neither a preflight
// during a running job nor the removal of leftovers can interfere.
absl::Status write_probe(const std::string& directory) {
  std::string probe = absl::StrCat(directory, "/", kTemporaryPrefix, "probe-XXXXXX");
  const int fd = mkostemp(probe.data(), O_CLOEXEC);
  if (fd < 0) return file_status(errno, absl::StrCat("cannot create ", probe));
  absl::Status status = write_all(fd, "probe");
  // A network file system may report a full disk only when the file is closed.
  if (close(fd) != 0 && status.ok()) status = file_status(errno, "close");
  unlink(probe.c_str());
  return status;
}

}  // namespace

absl::Status CheckpointStore::open(const CheckpointOwner& owner, CheckpointPeers* peers) {
  if (remote_ != nullptr) remote_->outlast_outage();
  if (peers == nullptr) return take(owner);
  const bool leads = peers->rank() == 0;
  PeerMessage mine;
  if (leads) {
    mine.status = take(owner);
    const auto text = remote_ != nullptr ? remote_->owner_text() : owner_text(directory_);
    if (mine.status.ok()) mine.status = text.status();
    if (mine.status.ok()) mine.body = *text;
  }
  const auto from_leader = share_message(*peers, mine);
  if (!from_leader.ok()) return from_leader.status();
  if (!from_leader->status.ok()) return from_leader->status;
  if (!leads) mine.status = see_owner(from_leader->body);
  const auto all = gather_messages(*peers, mine);
  if (!all.ok()) return all.status();
  const auto verdict = share_message(*peers, {first_error(*peers, *all)});
  return verdict.ok() ? verdict->status : verdict.status();
}

absl::Status CheckpointStore::see_owner(const std::string& leader_text) const {
  if (remote_ == nullptr) return compare_owner(owner_text(directory_), directory_, leader_text);
  remove_staged();
  if (auto status = remote_->make_staging(); !status.ok()) return status;
  return compare_owner(remote_->owner_text(), directory_, leader_text);
}

// Removes what a process that ended during a save has left on this node. What was fetched stays:
// the restore continues with it.
void CheckpointStore::remove_staged() const {
  const auto names = list_directory(remote_->staging());
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    std::error_code ignored;
    if (name.starts_with(kTemporaryPrefix))
      fs::remove_all(fs::path(remote_->staging()) / name, ignored);
  }
}

absl::Status CheckpointStore::take(const CheckpointOwner& owner) {
  if (remote_ != nullptr) {
    remove_staged();
    if (auto status = remote_->take(owner); !status.ok()) return status;
    return remote_->remove_incomplete();
  }
  if (auto status = prepare(); !status.ok()) return status;
  auto fence = DirectoryFence::take(directory_, owner);
  if (!fence.ok()) return fence.status();
  fence_ = std::move(*fence);
  remove_leftovers();
  return absl::OkStatus();
}

absl::Status CheckpointStore::still_owner() const {
  if (remote_ != nullptr) return remote_->check_owner();
  return fence_ != nullptr ? fence_->check() : absl::OkStatus();
}

std::string CheckpointStore::temporary_name(const std::string& what) const {
  const CheckpointOwner owner = remote_ != nullptr  ? remote_->owner()
                                : fence_ != nullptr ? fence_->owner()
                                                    : CheckpointOwner{};
  return absl::StrCat(remote_ != nullptr ? remote_->staging() : directory_, "/", kTemporaryPrefix,
                      what, "-", owner.job, "-", owner.attempt, "-", owner.incarnation);
}

void CheckpointStore::remove_leftovers() const {
  if (!still_owner().ok()) return;
  restore_asides(directory_);
  const auto names = list_directory(directory_);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const fs::path path = fs::path(directory_) / name;
    if (!is_leftover(name)) continue;
    if (name.starts_with(kTemporaryOwnerPrefix) && owner_is_alive(path)) continue;
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
}

absl::Status CheckpointStore::prepare() const {
  if (remote_ != nullptr) {
    const absl::Status status = remote_->probe();
    if (status.ok()) return status;
    return absl::Status(status.code(), absl::StrCat("checkpoint directory ", directory_,
                                                    " cannot be written: ", status.message()));
  }
  if (auto status = make_synced_folders(directory_); !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("checkpoint directory ", directory_, ": ", status.message()));
  }
  const absl::Status status = write_probe(directory_);
  if (status.ok()) return absl::OkStatus();
  return absl::Status(status.code(), absl::StrCat("checkpoint directory ", directory_,
                                                  " cannot be written: ", status.message()));
}

uint64_t CheckpointLayout::bytes() const {
  uint64_t bytes = 0;
  for (const ShardedTensors* part : {&params, &state}) {
    for (const TensorRow& row : part->tensors)
      bytes += static_cast<uint64_t>(row.elements()) * dtype_bytes(row.dtype);
  }
  return bytes;
}

std::string CheckpointStore::folder(int64_t step) const {
  return absl::StrCat(directory_, "/", step);
}

absl::StatusOr<std::vector<int64_t>> CheckpointStore::steps() const {
  if (remote_ != nullptr) return remote_->list();
  const auto names = list_directory(directory_);
  if (absl::IsNotFound(names.status())) return std::vector<int64_t>();
  if (!names.ok()) return names.status();
  std::vector<int64_t> steps;
  for (const std::string& name : *names) {
    const auto step = step_of_folder(name);
    if (step && !is_other_file(folder(*step))) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

absl::Status CheckpointStore::remove_old(int64_t newest) const {
  if (keep_ < 0) return absl::OkStatus();
  std::vector<int64_t> complete;
  int64_t best = -1;
  const auto found = steps();
  if (!found.ok()) return found.status();
  for (const int64_t step : *found) {
    // This training has skipped all later checkpoints, so they do not count.
    if (step > newest) break;
    // A copy of a checkpoint under another number is neither counted nor removed.
    const auto info = verify_checkpoint(folder(step), /*checksums=*/false);
    if (!info.ok() || info->step != step) continue;
    complete.push_back(step);
    if (info->evaluation.is_best(step)) best = step;
  }
  const auto keep = static_cast<size_t>(std::max<int64_t>(keep_, 1));
  for (size_t i = 0; i + keep < complete.size(); ++i) {
    if (complete[i] == best) continue;
    if (auto status = still_owner(); !status.ok()) return status;
    // The folder is renamed before it is removed, so that a process that ends during the removal
    // leaves no incomplete folder whose name is a number.
    const std::string doomed = temporary_name(absl::StrCat("removed-", complete[i]));
    std::error_code error;
    fs::remove_all(doomed, error);
    fs::rename(folder(complete[i]), doomed, error);
    if (error == std::errc::no_such_file_or_directory) continue;  // the file is removed already
    if (error)
      return file_status(error.value(),
                         absl::StrCat("cannot remove old checkpoint ", folder(complete[i])));
    fs::remove_all(doomed, error);
  }
  return absl::OkStatus();
}

// Returns the newest checkpoint for whose manifest `use` returns OK.
template <class Use>
absl::StatusOr<std::optional<CheckpointInfo>> CheckpointStore::newest_that(
    const Use& use, std::vector<std::string>& notes) const {
  const auto found = steps();
  // The store may respond again when the job is retried.
  if (!found.ok() && remote_ != nullptr && absl::IsUnknown(found.status()))
    return absl::InternalError(found.status().message());
  if (!found.ok()) return absl::FailedPreconditionError(found.status().message());
  std::vector<std::string> skipped;
  for (auto step = found->rbegin(); step != found->rend(); ++step) {
    auto manifest = manifest_of(*step);
    absl::Status status = manifest.status();
    if (status.ok() && manifest->info.step != *step)
      status = absl::DataLossError(absl::StrCat("its manifest states step ", manifest->info.step));
    if (status.ok()) status = use(*manifest);
    if (status.ok()) {
      for (const std::string& line : skipped)
        notes.push_back(absl::StrCat(line, "; ", folder(*step), " takes its place"));
      manifest->info.folder = folder(*step);
      return std::optional(std::move(manifest->info));
    }
    // The checkpoint belongs to another model, or peers are lost.
    if (absl::IsInvalidArgument(status) || absl::IsUnavailable(status) ||
        absl::IsDeadlineExceeded(status))
      return status;
    // Skips only damaged checkpoints. If it started from an older one for any other reason,
    // completed steps would be lost without an error.
    if (remote_ != nullptr && absl::IsUnknown(status))
      return absl::InternalError(
          absl::StrCat("cannot use checkpoint ", folder(*step), ": ", status.message()));
    if (!absl::IsDataLoss(status)) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot use checkpoint ", folder(*step), ": ", status.message()));
    }
    skipped.push_back(
        absl::StrCat("checkpoint ", folder(*step), " is passed over: ", status.message()));
  }
  if (found->empty()) return std::nullopt;
  notes.insert(notes.end(), skipped.begin(), skipped.end());
  return absl::FailedPreconditionError(absl::StrCat(
      "no checkpoint in ", directory_, " is complete (", skipped.back(),
      "); to start from the beginning, move that folder away or set another run_name"));
}

absl::StatusOr<std::optional<CheckpointInfo>> CheckpointStore::newest(
    std::vector<std::string>& notes, bool checksums) const {
  return newest_that(
      [&](const Manifest& manifest) {
        // The listing of a store has compared the sizes; readers compare the checksums.
        if (remote_ != nullptr) return absl::OkStatus();
        return verify_checkpoint(manifest.info.folder, checksums).status();
      },
      notes);
}

absl::StatusOr<CheckpointInfo> CheckpointStore::best() const {
  const auto found = steps();
  if (!found.ok()) return found.status();
  std::optional<EvalProgress> newest;
  for (auto step = found->rbegin(); step != found->rend(); ++step) {
    auto manifest = manifest_of(*step);
    if (absl::IsDataLoss(manifest.status())) continue;  // another checkpoint may be intact
    if (!manifest.ok()) return manifest.status();
    if (manifest->info.step != *step) continue;
    if (!newest) newest = manifest->info.evaluation;
    if (!manifest->info.evaluation.is_best(*step)) continue;
    // It was the best when it was saved. The newest checkpoint has later evaluations.
    if (newest->best_step > *step) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the best evaluation is that after step ", newest->best_step - 1,
          ", whose state was not saved; ", folder(*step), " was the best when it was saved (after ",
          "step ", *step - 1, "): name this folder to use it"));
    }
    manifest->info.folder = folder(*step);
    return std::move(manifest->info);
  }
  return absl::NotFoundError(absl::StrCat(
      "no checkpoint in ", directory_,
      " is that of a best evaluation; trainings with keep_best_checkpoint=True save it"));
}

// Tries to restore a checkpoint on this rank. Returns the common result of all ranks.
absl::Status CheckpointStore::try_restore(const Manifest& manifest, const CheckpointLayout& layout,
                                          const CheckpointBlocks& blocks,
                                          CheckpointPeers* peers) const {
  if (peers != nullptr) {
    const nlohmann::json tried = {{"try", manifest.info.step}, {"checksum", manifest.checksum}};
    const auto exchanged = share_message(*peers, {absl::OkStatus(), tried.dump()});
    if (!exchanged.ok()) return exchanged.status();
  }
  auto status = check_tensors(manifest, layout);
  if (status.ok()) status = read_own(manifest, layout, blocks);
  if (peers == nullptr) return status;
  const auto all = gather_messages(*peers, {status});
  return all.ok() ? first_error(*peers, *all) : all.status();
}

absl::StatusOr<std::optional<CheckpointInfo>> CheckpointStore::restore_newest(
    const CheckpointLayout& layout, const CheckpointBlocks& blocks, std::vector<std::string>& notes,
    CheckpointPeers* peers, const CheckpointJudge& judge) const {
  const bool leads = peers == nullptr || peers->rank() == 0;
  auto newest = leads ? lead_restore(layout, blocks, notes, peers, judge)
                      : follow_restore(layout, blocks, *peers);
  // Every rank has read: the end of both is an exchange of all.
  if (remote_ != nullptr) remote_->drop_fetched();
  return newest;
}

absl::StatusOr<Manifest> CheckpointStore::manifest_of(int64_t step) const {
  return remote_ != nullptr ? remote_->fetch_manifest(step) : read_manifest(folder(step));
}

absl::Status CheckpointStore::read_own(const Manifest& manifest, const CheckpointLayout& layout,
                                       const CheckpointBlocks& blocks) const {
  if (remote_ != nullptr) {
    std::vector<std::string> names;
    for (const size_t file : needed_files(manifest, layout))
      names.push_back(manifest.files[file].name);
    if (auto status = remote_->fetch_files(manifest, names); !status.ok()) return status;
  }
  return read_held(manifest, layout, blocks);
}

absl::Status CheckpointStore::check_layout(const CheckpointInfo& info,
                                           const CheckpointLayout& layout) const {
  if (remote_ == nullptr) return check_tensors(info.folder, layout);
  auto manifest = remote_->fetch_manifest(info.step);
  if (!manifest.ok()) return manifest.status();
  manifest->info.folder = info.folder;
  return check_tensors(*manifest, layout);
}

absl::StatusOr<std::optional<CheckpointInfo>> CheckpointStore::lead_restore(
    const CheckpointLayout& layout, const CheckpointBlocks& blocks, std::vector<std::string>& notes,
    CheckpointPeers* peers, const CheckpointJudge& judge) const {
  auto newest = newest_that(
      [&](const Manifest& manifest) {
        const absl::Status status = judge ? judge(manifest.info) : absl::OkStatus();
        return status.ok() ? try_restore(manifest, layout, blocks, peers) : status;
      },
      notes);
  if (peers == nullptr || absl::IsUnavailable(newest.status()) ||
      absl::IsDeadlineExceeded(newest.status()))
    return newest;
  // The last message to the other ranks: the restored checkpoint, none, or the error.
  nlohmann::json found = nlohmann::json::object();
  if (newest.ok() && newest->has_value())
    found = {{"step", (*newest)->step}, {"samples", (*newest)->samples}};
  const auto exchanged = share_message(*peers, {newest.status(), found.dump()});
  if (!exchanged.ok()) return exchanged.status();
  return newest;
}

// Tries each checkpoint that the leader proposes, until the leader sends the result.
absl::StatusOr<std::optional<CheckpointInfo>> CheckpointStore::follow_restore(
    const CheckpointLayout& layout, const CheckpointBlocks& blocks, CheckpointPeers& peers) const {
  while (true) {
    const auto exchanged = share_message(peers, {});
    if (!exchanged.ok()) return exchanged.status();
    if (!exchanged->status.ok()) return exchanged->status;
    const auto found = nlohmann::json::parse(exchanged->body, nullptr, /*allow_exceptions=*/false);
    if (!found.is_object()) return absl::InternalError("the leader's word is no object");
    if (found.empty()) return std::nullopt;
    if (!found.contains("try")) {
      return CheckpointInfo{.folder = folder(found.at("step").get<int64_t>()),
                            .step = found.at("step").get<int64_t>(),
                            .samples = found.at("samples").get<uint64_t>(),
                            .config = {}};
    }
    const auto read = [&] {
      const auto step = found.at("try").get<int64_t>();
      const auto checksum = found.at("checksum").get<std::string>();
      const auto manifest = remote_ != nullptr ? remote_->fetch_same_manifest(step, checksum)
                                               : read_same_manifest(folder(step), checksum);
      absl::Status status = manifest.status();
      if (status.ok()) status = check_tensors(*manifest, layout);
      return status.ok() ? read_own(*manifest, layout, blocks) : status;
    };
    const absl::Status status = when_visible(read);
    if (auto sent = gather_messages(peers, {status}); !sent.ok()) return sent.status();
  }
}

}  // namespace muster::trainer
