// The checkpoints of a job. A checkpoint is the folder <checkpoint_directory>/<step>/, where <step>
// is the number of completed steps. It contains:
//
//   model-<writer>-<number>.safetensors      parameters, with their names in the ParamSpec table,
//                                            and the state of delayed scaling (scaling_state.h)
//   optimizer-<writer>-<number>.safetensors  the optimizer's state, with names such as
//                                            "m.<parameter>" and "v.<parameter>" (AdamW)
//   manifest.json                            the file of each box of each tensor, checksums, step,
//                                            position in the data, name of the optimizer, config
//                                            (manifest.h)
//
// A checkpoint is written to the folder ".tmp-<step>-<job>-<attempt>-<incarnation>", which no other
// process uses, then synced and renamed. So a folder whose name is a number, exactly as this
// program writes it (names.h), is complete, unless it was damaged later, which the checksums
// reveal. <writer> is the number of a rank. Files contain boxes of tensors (base/tensor_box.h) and
// do not depend on the sharding: the files of all writers form one checkpoint, which can be
// restored with any other sharding.
//
// If each rank stores a part of the model, the ranks save and restore together
// (checkpoint_peers.h), in one directory that all of them can access. The leader is the process
// that the file OWNER states (owner.h). The steps of a save are:
//
//   leader: checks ownership, makes the folder
//   all:    write and sync their files
//   leader: writes the manifest of all files, reads it back, compares it with the files, publishes
//   all:    get the result
//
// A checkpoint is published only after the data of every rank is on the disk. A rank that fails
// during a save never damages earlier checkpoints.
//
// In an object store (a directory s3://… or gs://…) ranks share no folder: each writes to a folder
// of its node and uploads its files, and the leader uploads the manifest last
// (remote_checkpoints.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/base/device_memory.h"
#include "trainer_core/checkpoint/checkpoint_peers.h"
#include "trainer_core/checkpoint/manifest.h"
#include "trainer_core/checkpoint/owner.h"
#include "trainer_core/checkpoint/remote_checkpoints.h"
#include "trainer_core/model/param_spec.h"

namespace muster::trainer {

// The default bytes per file: that of MaxText's checkpoint_storage_target_data_file_size_bytes.
constexpr int64_t kCheckpointFileBytes = int64_t{2} << 30;

// The tensors in the checkpoints of a config, and the parts of them that this rank has.
struct CheckpointLayout {
  ShardedTensors params;  // parameters, then the scaling state
  std::string optimizer;  // opt_type
  ShardedTensors state;   // the optimizer's

  uint64_t bytes() const;  // size of the data of all ranks
};

// The flat blocks of this rank that contain its boxes.
struct CheckpointBlocks {
  std::span<float> params;
  std::span<float> state;
};

// Copies blocks in `memory` to host blocks of the same sizes.
inline void copy_state(const DeviceMemory& memory, const CheckpointBlocks& from,
                       const CheckpointBlocks& to) {
  memory.download(from.params.data(), to.params.data(), from.params.size_bytes());
  memory.download(from.state.data(), to.state.data(), from.state.size_bytes());
}

// Decides whether training may resume from a checkpoint, before its data is read. An error ends the
// search for a checkpoint.
using CheckpointJudge = std::function<absl::Status(const CheckpointInfo&)>;

// Returns a status with the code of `why` and the message "checkpoint of step 8 is not saved: …".
absl::Status not_saved(int64_t step, const absl::Status& why);

// The checkpoints in a directory. Called on one thread at a time.
class CheckpointStore {
 public:
  // Accesses no file. A save removes all but the `keep` newest checkpoints and best(); -1: none. A
  // file has at most `file_bytes` of data, or one row of a tensor if a row is larger.
  CheckpointStore(std::string directory, int64_t keep, int64_t file_bytes = kCheckpointFileBytes)
      : directory_(std::move(directory)), keep_(keep), file_bytes_(file_bytes) {
    if (is_object_url(directory_)) remote_ = std::make_unique<RemoteCheckpoints>(directory_);
  }

  // Opens the directory for saves: calls prepare(), makes `owner` the owner of the directory, then
  // calls remove_leftovers(). Later save() returns Aborted if another process has become the owner.
  // All peers, if any, must call it before any other function; only the leader does these steps.
  // Returns FailedPrecondition with a rank that cannot access the leader's directory.
  absl::Status open(const CheckpointOwner& owner, CheckpointPeers* peers = nullptr);

  // Removes the files of a process that ended during a save, and restores the checkpoint that it
  // was replacing.
  void remove_leftovers() const;

  // Makes the directory and verifies that it is writable. Returns PermissionDenied,
  // ResourceExhausted or another error of the system, with the directory.
  absl::Status prepare() const;

  // Writes a checkpoint, then removes old ones (see `keep`). On an error removes the temporary
  // folder and leaves earlier checkpoints unchanged; if the disk is full, the error states how much
  // space is missing. If an old checkpoint cannot be removed, adds a line to `notes` and returns
  // OK. With peers, all of them must call it, each with its own data, and get the same status.
  absl::Status save(const CheckpointInfo& info, const CheckpointLayout& layout,
                    const CheckpointBlocks& blocks, std::vector<std::string>& notes,
                    CheckpointPeers* peers = nullptr) const;

  // Returns the newest complete checkpoint; nullopt if no folder's name is a number. Adds a line to
  // `notes` for each newer checkpoint that is damaged, with the one that is used instead. Returns
  // FailedPrecondition with the folder if a checkpoint is unusable for another reason (version,
  // permissions, disk), and FailedPrecondition with instructions if all checkpoints are damaged.
  // Without `checksums`, checks only manifests and file sizes.
  absl::StatusOr<std::optional<CheckpointInfo>> newest(std::vector<std::string>& notes,
                                                       bool checksums) const;

  // Returns the checkpoint of the best evaluation (eval_progress.h): the newest one that was the
  // best when it was saved. Skips damaged manifests. Returns NotFound with instructions if there is
  // none.
  absl::StatusOr<CheckpointInfo> best() const;

  // Finds the newest complete checkpoint in the same way and restores it; reads each byte once.
  // After an error the contents of the blocks are undefined. Returns the errors of newest() and
  // check_tensors(). With peers, all of them must call it, each with its own layout; they restore
  // the newest checkpoint from which every rank can read its part. Only the leader adds notes and
  // calls `judge` (may be null); if `judge` returns InvalidArgument, all ranks return it.
  absl::StatusOr<std::optional<CheckpointInfo>> restore_newest(
      const CheckpointLayout& layout, const CheckpointBlocks& blocks,
      std::vector<std::string>& notes, CheckpointPeers* peers = nullptr,
      const CheckpointJudge& judge = nullptr) const;

  // Calls check_tensors() for a checkpoint of this store.
  absl::Status check_layout(const CheckpointInfo& info, const CheckpointLayout& layout) const;

  // Returns whether the directory is in an object store.
  bool is_remote() const { return remote_ != nullptr; }
  // Makes a save in an object store retry for a shorter time from now on. Any thread.
  void hurry() const {
    if (remote_ != nullptr) remote_->hurry();
  }

  // Calls RemoteCheckpoints::show_transfers() if the directory is in an object store. The bytes
  // that an upload sends are progress of the save.
  void show_transfers(std::function<void()> on_fetch, std::function<void()> on_upload) {
    if (remote_ == nullptr) return;
    remote_->show_transfers(std::move(on_fetch),
                            [this, on_upload = std::move(on_upload)](uint64_t sent) {
                              if (meter_ != nullptr) meter_->sent(sent);
                              on_upload();
                            });
  }

  // Makes later saves report the progress of this rank's part to `show`, on the thread that saves.
  void report_progress_to(SaveMeter::Show show) {
    meter_ = std::make_unique<SaveMeter>(std::move(show));
  }

  const std::string& directory() const { return directory_; }
  // Returns the folder of the checkpoint of a step.
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
  // This rank's own folder for a save, and the upload of its files to an object store.
  std::string local_folder(const std::string& name) const;
  absl::StatusOr<std::vector<StoredFile>> write_and_upload(const std::string& temporary,
                                                           int64_t step, int writer,
                                                           const CheckpointLayout& layout,
                                                           const CheckpointBlocks& blocks) const;
  absl::Status remote_publish(const std::string& temporary, const std::string& text,
                              int64_t step) const;
  absl::StatusOr<Manifest> manifest_of(int64_t step) const;
  absl::Status read_own(const Manifest& manifest, const CheckpointLayout& layout,
                        const CheckpointBlocks& blocks) const;
  absl::StatusOr<std::optional<CheckpointInfo>> lead_restore(const CheckpointLayout& layout,
                                                             const CheckpointBlocks& blocks,
                                                             std::vector<std::string>& notes,
                                                             CheckpointPeers* peers,
                                                             const CheckpointJudge& judge) const;
  absl::Status see_owner(const std::string& leader_text) const;
  void remove_staged() const;
  absl::Status try_restore(const Manifest& manifest, const CheckpointLayout& layout,
                           const CheckpointBlocks& blocks, CheckpointPeers* peers) const;
  absl::StatusOr<std::optional<CheckpointInfo>> follow_restore(const CheckpointLayout& layout,
                                                               const CheckpointBlocks& blocks,
                                                               CheckpointPeers& peers) const;
  // Removes the checkpoints beyond `keep` except best(), among those up to step `newest`, which was
  // just saved.
  absl::Status remove_old(int64_t newest) const;
  absl::Status still_owner() const;
  std::string temporary_name(const std::string& what) const;

  std::string directory_;
  int64_t keep_;
  int64_t file_bytes_;
  std::unique_ptr<RemoteCheckpoints> remote_;  // null: a directory of the file system
  std::unique_ptr<DirectoryFence> fence_;      // null before open(), and with remote_
  std::unique_ptr<SaveMeter> meter_;           // null: progress is not reported
};

// Writes the boxes of one writer to files of at most `file_bytes` (see CheckpointStore) and syncs
// them. `part` selects the parameters or the optimizer's state; `block` has the boxes at their
// offsets. The writers of a checkpoint must have different numbers and disjoint boxes. `meter`,
// which may be null, counts the bytes.
absl::StatusOr<std::vector<StoredFile>> write_boxes(const std::string& folder, CheckpointPart part,
                                                    int writer, const std::vector<TensorBox>& boxes,
                                                    std::span<const float> block,
                                                    int64_t file_bytes, SaveMeter* meter = nullptr);

// Reads the requested boxes of a part into `block` at their offsets. Reads only those blocks of the
// files that contain the boxes, on several threads. Requires that the manifest has all tensors of
// the boxes, with the same shapes. Returns DataLoss with the file, the bytes and the tensor of the
// first damage; after an error the memory of the boxes is undefined. Adds the bytes that were read
// from the disk to `bytes_read` unless it is null.
absl::Status read_boxes(const Manifest& manifest, CheckpointPart part,
                        const std::vector<TensorBox>& boxes, std::span<float> block,
                        uint64_t* bytes_read = nullptr);

// Returns the indices of the files that hold a part of the rank's boxes.
std::set<size_t> needed_files(const Manifest& manifest, const CheckpointLayout& layout);

// Reads manifest.json and compares the size of every file and, with `checksums`, the checksum of
// every block. Returns DataLoss with the difference, FailedPrecondition for another version of the
// format, and errors of the disk as they are.
absl::StatusOr<CheckpointInfo> verify_checkpoint(const std::string& folder, bool checksums);

// Checks that a checkpoint has exactly the tensors of the layout. Returns InvalidArgument with the
// first tensor that the checkpoint lacks or that has another shape (with both shapes), with the
// first tensor that the layout lacks, or with both optimizers if they differ.
absl::Status check_tensors(const Manifest& manifest, const CheckpointLayout& layout);
absl::Status check_tensors(const std::string& folder, const CheckpointLayout& layout);

// Reads the boxes that this rank holds into the blocks. Requires that check_tensors() returns OK.
// Returns the errors of read_boxes().
absl::Status read_held(const Manifest& manifest, const CheckpointLayout& layout,
                       const CheckpointBlocks& blocks);
// Reads the manifest of `folder`, then calls check_tensors() and read_held().
absl::Status restore_checkpoint(const std::string& folder, const CheckpointLayout& layout,
                                const CheckpointBlocks& blocks);

// Restores only the parameters, whatever the optimizer: `boxes` of the model's `rows`. Returns
// InvalidArgument as check_tensors() does.
absl::Status restore_parameters(const std::string& folder, const std::vector<TensorRow>& rows,
                                const std::vector<TensorBox>& boxes, std::span<float> params);
// Restores all of them.
inline absl::Status restore_parameters(const std::string& folder,
                                       const std::vector<TensorRow>& rows,
                                       std::span<float> params) {
  return restore_parameters(folder, rows, boxes_of_rows(rows), params);
}

}  // namespace muster::trainer
