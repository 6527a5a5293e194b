// Checkpoints of one job: <checkpoint_directory>/<step>/, where <step> is the number of steps
// completed.
//
//   model-<writer>-<number>.safetensors      parameters, by their names in the ParamSpec table;
//                                            with delayed scaling its state (scaling_state.h)
//   optimizer-<writer>-<number>.safetensors  the optimizer's state, by its own names (AdamW's:
//                                            "m.<parameter>", "v.<parameter>")
//   manifest.json                            the file of each box of each tensor, checksums, step,
//                                            position in the data, the optimizer's name, the config
//                                            (manifest.h)
//
// A checkpoint is written to ".tmp-<step>-<job>-<attempt>-<incarnation>", which no other process
// writes to, synced, and renamed. A folder whose name is a number as this program writes it
// (names.h) is therefore complete, or was damaged later, which the checksums reveal. The format
// consists of boxes, not ranks (base/tensor_box.h): files of several writers form one checkpoint,
// which can be restored to any other sharding. <writer> is a rank's number.
//
// Ranks that share the storage of a model save and restore together (checkpoint_peers.h), in one
// directory that all of them see. The leader is the process that OWNER names (owner.h). A save:
//
//   leader: check ownership, make the folder ──▶ all: write and sync their files ──▶ leader: write
//   the manifest of all files, read it back and compare it with the files; publish ──▶ all: get the
//   result
//
// Nothing is published before every rank's data is on the disk, and a rank that fails or dies
// leaves earlier checkpoints intact.
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

// The tensors in a config's checkpoints, and the parts that one rank has.
struct CheckpointLayout {
  ShardedTensors params;  // and behind them the scaling state
  std::string optimizer;  // opt_type
  ShardedTensors state;

  uint64_t bytes() const;  // of all data, on all ranks
};

// The flat blocks of one rank that contain its boxes.
struct CheckpointBlocks {
  std::span<float> params;
  std::span<float> state;
};

// Copies blocks in `memory` to equally large ones of the host.
inline void copy_state(const DeviceMemory& memory, const CheckpointBlocks& from,
                       const CheckpointBlocks& to) {
  memory.download(from.params.data(), to.params.data(), from.params.size_bytes());
  memory.download(from.state.data(), to.state.data(), from.state.size_bytes());
}

// Decides whether training may resume from a checkpoint, before its data is read. An error ends the
// search.
using CheckpointJudge = std::function<absl::Status(const CheckpointInfo&)>;

// Formats "checkpoint of step 8 is not saved: …", with the code.
absl::Status not_saved(int64_t step, const absl::Status& why);

class CheckpointStore {
 public:
  // The `keep` newest checkpoints remain; -1: all. A file holds `file_bytes` of data, or one row of
  // one tensor if that is larger. Accesses no file.
  CheckpointStore(std::string directory, int64_t keep, int64_t file_bytes = kCheckpointFileBytes)
      : directory_(std::move(directory)), keep_(keep), file_bytes_(file_bytes) {}

  // Opens the directory for the process that saves or leads: prepare(), takes the directory for
  // `owner`, then remove_leftovers(). From then on save() returns Aborted if another process takes
  // the directory. With peers all of them call it, before anything else: FailedPrecondition names a
  // rank that does not see the leader's directory.
  absl::Status open(const CheckpointOwner& owner, CheckpointPeers* peers = nullptr);

  // Removes the leftovers of a process that died during a save, and restores the checkpoint that it
  // was replacing.
  void remove_leftovers() const;

  // Makes the directory and verifies that it is writable. PermissionDenied, ResourceExhausted, …
  // name it.
  absl::Status prepare() const;

  // Writes a checkpoint, then removes those beyond `keep`. On an error the temporary folder is
  // removed and earlier checkpoints are unchanged; a full disk's error states how much space is
  // missing. An old checkpoint that cannot be removed adds a line to `notes`; the save still
  // succeeds. With peers all of them call it, each with its data; the status is the same on all.
  absl::Status save(const CheckpointInfo& info, const CheckpointLayout& layout,
                    const CheckpointBlocks& blocks, std::vector<std::string>& notes,
                    CheckpointPeers* peers = nullptr) const;

  // Returns the newest complete checkpoint; none if there is no numbered folder. Adds a line to
  // `notes` for every newer one that is damaged, with the one used instead. FailedPrecondition
  // names a folder that is unusable for another reason (another version, permissions, the disk), or
  // explains how to proceed if all are damaged. Without `checksums` only manifests and file sizes
  // are checked.
  absl::StatusOr<std::optional<CheckpointInfo>> newest(std::vector<std::string>& notes,
                                                       bool checksums) const;

  // The same, and restores it, reading each byte once; after an error the blocks are undefined.
  // InvalidArgument as of check_tensors. With peers all of them call it, each with its layout, and
  // agree on the newest checkpoint from which every one could read its part. Only the leader gets
  // notes and calls `judge` (may be null), whose InvalidArgument all return.
  absl::StatusOr<std::optional<CheckpointInfo>> restore_newest(
      const CheckpointLayout& layout, const CheckpointBlocks& blocks,
      std::vector<std::string>& notes, CheckpointPeers* peers = nullptr,
      const CheckpointJudge& judge = nullptr) const;

  // Shows the progress of this rank's part of later saves, on the saving thread.
  void show_progress(SaveMeter::Show show) {
    meter_ = std::make_unique<SaveMeter>(std::move(show));
  }

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
  // Removes checkpoints up to `newest`, the one that was just saved.
  absl::Status remove_old(int64_t newest) const;
  absl::Status still_owner() const;
  std::string temporary_name(const std::string& what) const;

  std::string directory_;
  int64_t keep_;
  int64_t file_bytes_;
  std::unique_ptr<DirectoryFence> fence_;  // none before open()
  std::unique_ptr<SaveMeter> meter_;       // null: nobody waits for saves
};

// Writes one writer's boxes of one part, in files of `file_bytes`, and syncs them. The boxes'
// offsets refer to `block`; writers' boxes do not overlap. Writers of one checkpoint have different
// numbers. `meter`, if any, counts the bytes.
absl::StatusOr<std::vector<StoredFile>> write_boxes(const std::string& folder, CheckpointPart part,
                                                    int writer, const std::vector<TensorBox>& boxes,
                                                    std::span<const float> block,
                                                    int64_t file_bytes, SaveMeter* meter = nullptr);

// Reads the requested boxes of a part into `block` at their offsets, and of each file only the
// blocks that hold them. Uses several threads. DataLoss names the file, its bytes and the tensor of
// the first damage; after an error the boxes' memory is undefined. Requires boxes of tensors that
// the manifest has with the same shapes. `bytes_read`, unless null, grows by the bytes read from
// the disk.
absl::Status read_boxes(const Manifest& manifest, CheckpointPart part,
                        const std::vector<TensorBox>& boxes, std::span<float> block,
                        uint64_t* bytes_read = nullptr);

// Reads manifest.json and compares every file's size, and with `checksums` every block's. DataLoss
// names the difference; another version is FailedPrecondition; disk errors are returned as they
// are.
absl::StatusOr<CheckpointInfo> verify_checkpoint(const std::string& folder, bool checksums);

// InvalidArgument names the first tensor of the layout that is missing or has another shape (both
// shapes), the first tensor that the layout lacks, or both optimizers if the state belongs to
// another one.
absl::Status check_tensors(const Manifest& manifest, const CheckpointLayout& layout);
absl::Status check_tensors(const std::string& folder, const CheckpointLayout& layout);

// Copies the rank's parts into the blocks. Requires check_tensors. DataLoss as of read_boxes.
absl::Status read_held(const Manifest& manifest, const CheckpointLayout& layout,
                       const CheckpointBlocks& blocks);
// Calls check_tensors, then read_held.
absl::Status restore_checkpoint(const std::string& folder, const CheckpointLayout& layout,
                                const CheckpointBlocks& blocks);

// Restores only the parameters, of any optimizer. InvalidArgument as of check_tensors.
absl::Status restore_parameters(const std::string& folder, const std::vector<TensorRow>& rows,
                                std::span<float> params);

}  // namespace muster::trainer
