// Local checkpoints: at a fixed interval of steps, each node stores the state of its ranks in
// memory-backed storage, and another node stores a copy. So the loss of a rank or a node costs only
// a few steps, and no read from shared storage (Wang et al. 2023, "GEMINI: Fast Failure Recovery in
// Distributed Training with In-Memory Checkpoints"). All ranks of a job call the same functions in
// the same order. The writers (checkpointing.h) have the state; any rank may store a copy, or may
// have a copy that another rank needs.
//
//   save:     all begin ──▶ writers write files on their own node ──▶ each sends its files to a
//             rank on the next node (LocalNodes::copy_holder_of), which stores copies ──▶ the
//             earlier save is removed if all ranks have succeeded
//   restore:  gather the records of all nodes ──▶ choose the newest complete save ──▶ each node
//             verifies its files ──▶ nodes send each other missing or damaged files ──▶ all read
//             their boxes ──▶ if a rank has failed, all try the next older save
//
// A node has one save, and two while the second is written. A failed save does not change the
// earlier one. The files, the manifest and the code that reads them are those of shared checkpoints
// (checkpoint/local_store.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/checkpoint/local_plan.h"
#include "trainer_core/checkpoint/local_store.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/rank/group_peers.h"
#include "trainer_core/rank/train_context.h"

namespace muster::trainer {

// The name of the collectives of local checkpoints on the progress page.
constexpr char kLocalName[] = "local checkpoint";

// Returns the folder of local checkpoints. `given` is the folder that the worker has chosen for the
// job (MUSTER_LOCAL_CHECKPOINTS); if local_checkpoint_directory is set, it replaces the parent
// folder of `given`. If `given` is empty, the folder is one of the user in /dev/shm, named after
// the checkpoint directory.
LocalStorage local_storage(const TrainConfig& config, const std::string& given);

// The local checkpoints of a rank. Called on one thread at a time. An error of the group ends the
// job at the next call; any other error is the same on all ranks.
class LocalCheckpoints {
 public:
  // `groups` must outlive this object.
  LocalCheckpoints(const LocalStorage& storage, int64_t file_bytes, ProcessGroups& groups);

  // Creates the folder and exchanges the places of all ranks. Called before all other functions. An
  // error other than those of the group explains why there can be no local checkpoints; no other
  // function may be called then. Adds a line to `notes` if no other node stores a copy.
  absl::Status open(std::vector<std::string>& notes);

  // Saves the state. `blocks` are used on writers only. After an error the earlier save remains.
  absl::Status save(const CheckpointInfo& info, const CheckpointLayout& layout,
                    const CheckpointBlocks& blocks);

  // A restored save.
  struct Restored {
    CheckpointInfo info;
    std::string from;  // "own copies; 2 files from rank 4's node"; only on rank 0
  };
  // Restores the newest complete save on all writers, among those of step `oldest` or later for
  // which `judge` returns OK. `oldest` and `judge` are used on rank 0 only. Returns nullopt if
  // there is no such save; the contents of the blocks are then undefined. Adds lines for the user
  // to `notes` on rank 0.
  absl::StatusOr<std::optional<Restored>> restore(const CheckpointLayout& layout,
                                                  const CheckpointBlocks& blocks, int64_t oldest,
                                                  const CheckpointJudge& judge,
                                                  std::vector<std::string>& notes);

  // Removes all saves of this node. Requires that no save is in progress.
  void remove_saves() const;
  // Blocks until all ranks have called it, then removes this node's folder. Called when the job is
  // complete. If a rank is lost before, the folder remains, because the next attempt needs the
  // saves.
  void remove();

 private:
  struct Trial;

  bool is_save_remover() const;  // this rank removes the saves of its node
  absl::Status agree(const absl::Status& mine);
  absl::StatusOr<std::string> begin_save(int64_t step);
  absl::Status copy(const std::string& save, const std::string& own_part, absl::Status& local);
  absl::StatusOr<std::vector<LocalCandidate>> find(int64_t oldest, const CheckpointJudge& judge,
                                                   const CheckpointLayout& layout,
                                                   std::vector<std::string>& notes);
  void verify_share(Trial& trial) const;
  absl::StatusOr<std::vector<FileTransfer>> plan(const Trial& trial,
                                                 std::vector<std::string>& notes);
  absl::Status fetch(const Trial& trial, const std::vector<FileTransfer>& transfers);
  absl::StatusOr<std::string> try_one(Trial& trial, const CheckpointLayout& layout,
                                      const CheckpointBlocks& blocks,
                                      std::vector<std::string>& notes);

  LocalStore store_;
  std::string host_;
  int64_t file_bytes_;
  ProcessGroup& group_;
  GroupPeers peers_;  // peers of `group_`
  const Mesh mesh_;
  std::optional<LocalNodes> nodes_;  // set by open()
  // The rounds of transfers to the ranks that store copies; FileTransfer::file is not used.
  std::vector<std::vector<FileTransfer>> copy_rounds_;
};

}  // namespace muster::trainer
