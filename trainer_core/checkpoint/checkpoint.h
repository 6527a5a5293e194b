// Checkpoints of one job: <checkpoint_directory>/<step>/, where <step> is the number of steps completed.
//
//   model-<writer>-<number>.safetensors      parameters, by their names in the ParamSpec table; of delayed scaling its
//                                            state (model/scaling_state.h)
//   optimizer-<writer>-<number>.safetensors  the optimizer's state, by its own names (AdamW's: "m.<parameter>", "v.<parameter>")
//   manifest.json                            which file holds which box of which tensor, checksums, the step, the position in
//                                            the data, the optimizer's name, the config (manifest.h)
//
// A checkpoint is written to ".tmp-<step>-<job>-<attempt>-<incarnation>", which no other process writes to, synced, and renamed: a folder with a number for a name is whole,
// or was damaged later, which the checksums tell. The format knows boxes and not ranks (base/tensor_box.h): files of several writers
// make one checkpoint, and it is restored to any other way of sharding. <writer> is a rank's number.
//
// Where ranks share the storage of a model they save and restore together (checkpoint_peers.h), in one directory that all of them
// see. The leader is the process that OWNER names (owner.h). Of a save:
//
//   leader: is it still mine? makes the folder ──▶ all: write and sync their files ──▶ leader: manifest of all files, read back and
//   compared with what lies there; publishes ──▶ all know how it ended
//
// so that nothing is published before every rank's numbers are on the disk, and a rank that fails or dies leaves what was there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/base/device_memory.h"
#include "trainer_core/checkpoint/checkpoint_peers.h"
#include "trainer_core/checkpoint/manifest.h"
#include "trainer_core/checkpoint/owner.h"
#include "trainer_core/model/param_spec.h"

namespace muster::trainer {

// MaxText's checkpoint_storage_target_data_file_size_bytes.
constexpr int64_t kCheckpointFileBytes = int64_t{2} << 30;

// What the checkpoints of one config hold, and what of it one rank has.
struct CheckpointLayout {
  ShardedTensors params;  // and behind them the scaling state
  std::string optimizer;  // opt_type
  ShardedTensors state;

  uint64_t bytes() const;  // of all numbers, whoever has them
};

// The flat blocks of one rank, where its boxes lie.
struct CheckpointBlocks {
  std::span<float> params;
  std::span<float> state;
};

// From blocks in `memory` to as large ones of the host's.
inline void copy_state(const DeviceMemory& memory, const CheckpointBlocks& from,
                       const CheckpointBlocks& to) {
  memory.download(from.params.data(), to.params.data(), from.params.size_bytes());
  memory.download(from.state.data(), to.state.data(), from.state.size_bytes());
}

// Whether a training may go on from a checkpoint, before a number of it is read. An error ends the search for one.
using CheckpointJudge = std::function<absl::Status(const CheckpointInfo&)>;

// "checkpoint of step 8 is not saved: …", with the code.
absl::Status not_saved(int64_t step, const absl::Status& why);

class CheckpointStore {
 public:
  // `keep` newest checkpoints stay; -1: all. A file holds `file_bytes` of numbers, or one row of one tensor where that is
  // more. Touches no file.
  CheckpointStore(std::string directory, int64_t keep, int64_t file_bytes = kCheckpointFileBytes)
      : directory_(std::move(directory)), keep_(keep), file_bytes_(file_bytes) {}

  // For the one process that will save, or lead: prepare(), takes the directory for `owner`, then remove_leftovers(). From then
  // on save() is Aborted when somebody else took the directory. With peers all of them call it, before anything else: FailedPrecondition
  // names a rank that does not see the leader's directory.
  absl::Status open(const CheckpointOwner& owner, CheckpointPeers* peers = nullptr);

  // Removes what a process that died while it saved has left, and brings back what it was replacing.
  void remove_leftovers() const;

  // Makes the directory and proves that it can be written. PermissionDenied, ResourceExhausted, … name it.
  absl::Status prepare() const;

  // Writes a checkpoint, then removes those beyond `keep`. On an error the temporary folder is removed, and earlier
  // checkpoints are as they were; a full disk says how much is missing. An old one that cannot be removed is a line in
  // `notes`: what was saved is saved. With peers all of them call it, each with what it has; the status is the same on all.
  absl::Status save(const CheckpointInfo& info, const CheckpointLayout& layout,
                    const CheckpointBlocks& blocks, std::vector<std::string>& notes,
                    CheckpointPeers* peers = nullptr) const;

  // The newest checkpoint that is whole; none when there is no numbered folder. Adds a line to `notes` for every newer one
  // that is damaged, with the one that takes its place. FailedPrecondition names a folder that cannot be used for another
  // reason (another version, permissions, the disk), or says how to go on when all are damaged. Without `checksums` only
  // manifests and files' sizes are looked at.
  absl::StatusOr<std::optional<CheckpointInfo>> newest(std::vector<std::string>& notes,
                                                       bool checksums) const;

  // The same, and restores it, each byte read once; the blocks hold anything after an error. InvalidArgument as of
  // check_tensors. With peers all of them call it, each with what it has, and come to the newest checkpoint of which every one could
  // read what it wants; notes are the leader's alone, and so is `judge` (may be null), whose InvalidArgument is everybody's.
  absl::StatusOr<std::optional<CheckpointInfo>> restore_newest(
      const CheckpointLayout& layout, const CheckpointBlocks& blocks,
      std::vector<std::string>& notes, CheckpointPeers* peers = nullptr,
      const CheckpointJudge& judge = nullptr) const;

  const std::string& directory() const { return directory_; }
  std::string folder(int64_t step) const;

 private:
  template <class Use>
  absl::StatusOr<std::optional<CheckpointInfo>> newest_that(const Use& use,
                                                            std::vector<std::string>& notes) const;
  absl::StatusOr<std::vector<int64_t>> steps() const;  // ascending
  absl::Status take(const CheckpointOwner& owner);
  absl::Status lead_save(const CheckpointInfo& info, const CheckpointLayout& layout,
                         const CheckpointBlocks& blocks, CheckpointPeers* peers) const;
  absl::Status write_checkpoint(const std::string& temporary, const CheckpointInfo& info,
                                const CheckpointLayout& layout, const CheckpointBlocks& blocks,
                                CheckpointPeers* peers) const;
  absl::Status follow_save(const CheckpointInfo& info, const CheckpointLayout& layout,
                           const CheckpointBlocks& blocks, CheckpointPeers& peers) const;
  absl::StatusOr<std::vector<StoredFile>> write_own(const std::string& temporary, int writer,
                                                    const CheckpointLayout& layout,
                                                    const CheckpointBlocks& blocks) const;
  absl::Status try_restore(const Manifest& manifest, const CheckpointLayout& layout,
                           const CheckpointBlocks& blocks, CheckpointPeers* peers) const;
  absl::StatusOr<std::optional<CheckpointInfo>> follow_restore(const CheckpointLayout& layout,
                                                               const CheckpointBlocks& blocks,
                                                               CheckpointPeers& peers) const;
  // Of those up to `newest`, the one that was just saved.
  absl::Status remove_old(int64_t newest) const;
  absl::Status still_owner() const;
  std::string temporary_name(const std::string& what) const;

  std::string directory_;
  int64_t keep_;
  int64_t file_bytes_;
  std::unique_ptr<DirectoryFence> fence_;  // none before open()
};

// Writes what one writer holds of one part, in files of `file_bytes`, and syncs them. The boxes lie in `block` as their offsets
// say; writers' boxes do not overlap. Writers of one checkpoint have different numbers.
absl::StatusOr<std::vector<StoredFile>> write_boxes(const std::string& folder, CheckpointPart part,
                                                    int writer, const std::vector<TensorBox>& boxes,
                                                    std::span<const float> block,
                                                    int64_t file_bytes);

// Reads what the boxes want of a part into `block`, where their offsets say, and nothing else: of each file the blocks that
// hold it. Several threads. DataLoss names the file, its bytes and the tensor of the first damage; after an error the boxes' places
// hold anything. Requires boxes of tensors that the manifest has with their shapes. `bytes_read`, unless it is null, grows by what came
// from the disk.
absl::Status read_boxes(const Manifest& manifest, CheckpointPart part,
                        const std::vector<TensorBox>& boxes, std::span<float> block,
                        uint64_t* bytes_read = nullptr);

// Reads manifest.json and compares every file's size, and with `checksums` every block's. DataLoss says what differs; another
// version is FailedPrecondition, and the disk's errors are their own.
absl::StatusOr<CheckpointInfo> verify_checkpoint(const std::string& folder, bool checksums);

// InvalidArgument names the first tensor of the layout that is missing or has another shape (both shapes), or the first
// one that the layout does not know, or both optimizers where the state is another one's.
absl::Status check_tensors(const Manifest& manifest, const CheckpointLayout& layout);
absl::Status check_tensors(const std::string& folder, const CheckpointLayout& layout);

// Copies what the rank holds into the blocks. Requires check_tensors. DataLoss as of read_boxes.
absl::Status read_held(const Manifest& manifest, const CheckpointLayout& layout,
                       const CheckpointBlocks& blocks);
// check_tensors, then read_held.
absl::Status restore_checkpoint(const std::string& folder, const CheckpointLayout& layout,
                                const CheckpointBlocks& blocks);

// The parameters alone, whatever the optimizer was. InvalidArgument as of check_tensors.
absl::Status restore_parameters(const std::string& folder, const std::vector<TensorRow>& rows,
                                std::span<float> params);

}  // namespace muster::trainer
