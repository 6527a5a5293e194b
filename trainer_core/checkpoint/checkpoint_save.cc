// Saves checkpoints: the parts of the leader and of the other ranks of a save.
#include <algorithm>
#include <filesystem>
#include <system_error>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "common/files/free_space.h"
#include "common/random/fnv.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/publish.h"
#include "trainer_core/checkpoint/visible.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Returns the first message of a save to all ranks, with its step and the folder.
PeerMessage opening(const absl::Status& status, int64_t step, const std::string& folder) {
  return {status, json{{"step", step}, {"folder", folder}}.dump()};
}

// Names the files of a save in an object store: no other save has this folder.
std::string save_name(const std::string& temporary) {
  return absl::StrCat(absl::Hex(fnv1a(fs::path(temporary).filename().string()), absl::kZeroPad16));
}

absl::StatusOr<std::string> folder_of(const PeerMessage& opening, int64_t step) {
  if (!opening.status.ok()) return opening.status;
  const json body = json::parse(opening.body, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object()) return absl::InternalError("a save message without a folder");
  if (body.at("step") == step) return body.at("folder").get<std::string>();
  return absl::InternalError(absl::StrCat("it has completed ", step, " steps, and rank 0 ",
                                          body.at("step").get<int64_t>()));
}

uint64_t bytes_of(const std::vector<TensorBox>& boxes) {
  uint64_t bytes = 0;
  for (const TensorBox& box : boxes)
    bytes += static_cast<uint64_t>(box.elements()) * dtype_bytes(box.dtype);
  return bytes;
}

// Returns the files of the other ranks, as manifest entries.
absl::StatusOr<std::vector<json>> files_of(const std::vector<PeerMessage>& others) {
  std::vector<json> files;
  for (const PeerMessage& message : others) {
    files.push_back(json::parse(message.body, nullptr, /*allow_exceptions=*/false));
    if (!files.back().is_object()) return absl::InternalError("a list of files that is none");
  }
  return files;
}

}  // namespace

absl::Status not_saved(int64_t step, const absl::Status& why) {
  return {why.code(), absl::StrCat("checkpoint of step ", step, " is not saved: ", why.message())};
}

absl::StatusOr<std::vector<StoredFile>> CheckpointStore::write_own(
    const std::string& temporary, int writer, const CheckpointLayout& layout,
    const CheckpointBlocks& blocks) const {
  if (meter_ != nullptr)
    meter_->begin(bytes_of(layout.params.written) + bytes_of(layout.state.written));
  auto files = write_boxes(temporary, CheckpointPart::kModel, writer, layout.params.written,
                           blocks.params, file_bytes_, meter_.get());
  if (!files.ok()) return files.status();
  auto state = write_boxes(temporary, CheckpointPart::kOptimizer, writer, layout.state.written,
                           blocks.state, file_bytes_, meter_.get());
  if (!state.ok()) return state.status();
  if (meter_ != nullptr) meter_->complete();
  std::ranges::move(*state, std::back_inserter(*files));
  return files;
}

std::string CheckpointStore::local_folder(const std::string& name) const {
  return remote_ == nullptr
             ? name
             : absl::StrCat(remote_->staging(), "/", fs::path(name).filename().string());
}

absl::StatusOr<std::vector<StoredFile>> CheckpointStore::write_and_upload(
    const std::string& temporary, int64_t step, int writer, const CheckpointLayout& layout,
    const CheckpointBlocks& blocks) const {
  auto files = write_own(temporary, writer, layout, blocks);
  if (!files.ok() || remote_ == nullptr) return files;
  absl::Status status = RemoteCheckpoints::rename_files(temporary, save_name(temporary), *files);
  std::vector<std::string> names;
  for (const StoredFile& file : *files) names.push_back(file.name);
  if (status.ok()) status = remote_->upload(temporary, names, step);
  if (!status.ok()) return status;
  return files;
}

// Writes a checkpoint to a temporary folder, which is then complete and durable except for its
// name.
absl::Status CheckpointStore::write_checkpoint(const std::string& temporary,
                                               const CheckpointInfo& info,
                                               const CheckpointLayout& layout,
                                               const CheckpointBlocks& blocks,
                                               CheckpointPeers* peers) const {
  auto files = write_and_upload(temporary, info.step, peers == nullptr ? 0 : peers->world_rank(0),
                                layout, blocks);
  std::vector<json> others;
  if (peers != nullptr) {
    auto all = gather_messages(*peers, {files.status()});
    if (!all.ok()) return all.status();
    if (auto status = first_error(*peers, *all); !status.ok()) return status;
    all->erase(all->begin());
    auto parsed = files_of(*all);
    if (!parsed.ok()) return parsed.status();
    others = std::move(*parsed);
  }
  if (!files.ok()) return files.status();
  Manifest manifest{info, std::move(*files)};
  manifest.info.optimizer = layout.optimizer;
  if (remote_ != nullptr)
    return remote_publish(temporary, manifest_text(manifest, others), info.step);
  // The manifest is the last file: the sync of the folder that follows it also covers the names of
  // the other files.
  auto status = write_file_atomically(absl::StrCat(temporary, "/", kManifestFile),
                                      manifest_text(manifest, others),
                                      {.durability = Durability::kPowerLoss});
  if (!status.ok() || peers == nullptr) return status;
  // Verifies that the files of all ranks are visible here and form a complete checkpoint.
  const absl::Status complete = when_visible([&] { return read_manifest(temporary).status(); });
  if (complete.ok()) return complete;
  return absl::Status(complete.code(), absl::StrCat(temporary, ": ", complete.message()));
}

// The files of all ranks are in the store. Writes what makes them a checkpoint.
absl::Status CheckpointStore::remote_publish(const std::string& temporary, const std::string& text,
                                             int64_t step) const {
  if (auto listed = remote_->list(RemoteCheckpoints::Patience::kSave); !listed.ok())
    return listed.status();
  const auto manifest = parse_manifest(text);
  if (!manifest.ok()) return manifest.status();
  if (auto status = remote_->check_object_sizes(*manifest); !status.ok())
    return absl::Status(status.code(), absl::StrCat(folder(step), ": ", status.message()));
  std::error_code error;
  fs::create_directories(temporary, error);
  auto status = write_file_atomically(absl::StrCat(temporary, "/", kManifestFile), text);
  if (status.ok()) status = still_owner();
  return status.ok() ? remote_->upload(temporary, {kManifestFile}, step) : status;
}

absl::Status CheckpointStore::lead_save(const CheckpointInfo& info, const CheckpointLayout& layout,
                                        const CheckpointBlocks& blocks,
                                        CheckpointPeers* peers) const {
  const std::string temporary = temporary_name(absl::StrCat(info.step));
  absl::Status status = still_owner();
  std::error_code error;
  if (status.ok()) {
    fs::remove_all(temporary, error);
    fs::create_directories(temporary, error);
    if (error) status = file_status(error.value(), absl::StrCat("cannot make ", temporary));
  }
  if (peers != nullptr) {
    const auto exchanged = share_message(*peers, opening(status, info.step, temporary));
    if (status.ok() && !exchanged.ok()) status = exchanged.status();
  }
  if (status.ok()) {
    status = write_checkpoint(temporary, info, layout, blocks, peers);
    // A new owner of the directory removes the temporary folders of the old owner; in this case
    // returns the loss of the ownership as the cause.
    if (auto owner = remote_ != nullptr ? absl::OkStatus() : still_owner(); !owner.ok())
      status = owner;
    if (status.ok() && remote_ == nullptr)
      status = publish_folder(temporary, directory_, absl::StrCat(info.step));
  }
  if (!status.ok() && remote_ == nullptr) fs::remove_all(temporary, error);
  if (peers != nullptr) {
    // The checkpoint is published, whether or not the other ranks receive the message.
    (void)share_message(*peers, {status});
  }
  // Every rank of this node has uploaded, or given up.
  if (remote_ != nullptr) fs::remove_all(temporary, error);
  return status;
}

absl::Status CheckpointStore::follow_save(const CheckpointInfo& info,
                                          const CheckpointLayout& layout,
                                          const CheckpointBlocks& blocks,
                                          CheckpointPeers& peers) const {
  const auto opened = share_message(peers, {});
  if (!opened.ok()) return opened.status();
  std::string staged;  // this node's folder of the save; empty without an object store
  if (opened->status.ok()) {
    PeerMessage mine;
    if (const auto leader_folder = folder_of(*opened, info.step); leader_folder.ok()) {
      const std::string folder = local_folder(*leader_folder);
      std::error_code error;
      if (remote_ != nullptr) {
        fs::create_directories(folder, error);
        staged = folder;
      }
      const auto files =
          write_and_upload(folder, info.step, peers.world_rank(peers.rank()), layout, blocks);
      mine.status = files.ok() && remote_ == nullptr ? sync_path(folder) : files.status();
      if (mine.status.ok()) mine.body = files_json(*files).dump();
    } else {
      mine.status = leader_folder.status();
    }
    if (auto exchanged = gather_messages(peers, mine); !exchanged.ok()) return exchanged.status();
  }
  const auto end = share_message(peers, {});
  std::error_code ignored;
  // Every rank has uploaded, or given up.
  if (!staged.empty()) fs::remove_all(staged, ignored);
  return end.ok() ? end->status : end.status();
}

absl::Status CheckpointStore::save(const CheckpointInfo& info, const CheckpointLayout& layout,
                                   const CheckpointBlocks& blocks, std::vector<std::string>& notes,
                                   CheckpointPeers* peers) const {
  const bool leads = peers == nullptr || peers->rank() == 0;
  const auto end_of_save = absl::MakeCleanup([this] {
    if (meter_ != nullptr) meter_->end();
  });
  const absl::Status status =
      leads ? lead_save(info, layout, blocks, peers) : follow_save(info, layout, blocks, *peers);
  if (absl::IsResourceExhausted(status)) {
    const std::string& disk = remote_ != nullptr ? remote_->staging() : directory_;
    const std::string missing = missing_room(free_space_bytes(disk), layout.bytes());
    return not_saved(info.step,
                     absl::ResourceExhaustedError(absl::StrCat(status.message(), missing)));
  }
  if (!status.ok()) return not_saved(info.step, status);
  if (!leads) return absl::OkStatus();
  if (auto removed =
          remote_ != nullptr ? remote_->remove_old(info.step, keep_) : remove_old(info.step);
      !removed.ok())
    notes.emplace_back(removed.message());
  return absl::OkStatus();
}

}  // namespace muster::trainer
