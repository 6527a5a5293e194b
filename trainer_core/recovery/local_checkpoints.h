// Local checkpoints: at a fixed step interval each node stores its ranks' state in memory-backed
// storage, and another node stores a second copy. A lost rank or node then costs a few steps and no
// read from shared storage (Wang et al. 2023, "GEMINI: Fast Failure Recovery in Distributed
// Training with In-Memory Checkpoints"). All ranks of a job call the same functions in the same
// order. The writers (checkpointing.h) hold the state; any rank may store a copy, or have one that
// is needed.
//
//   save:     all begin ──▶ writers write files on their own node ──▶ each sends them to its keeper
//             on the next node, which stores them ──▶ all agree ──▶ the earlier save is removed
//   restore:  gather what is stored where ──▶ choose the newest whole save ──▶ each node verifies
//             its files ──▶ nodes send each other missing or damaged files ──▶ all read their boxes
//             ──▶ all agree; otherwise the next older save
//
// There are two saves while one is written, otherwise one. A failed save leaves the earlier one.
// Files, manifest and reading are those of shared checkpoints (checkpoint/local_store.h); only the
// storage differs.
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

// The name of its collectives on the progress page.
constexpr char kLocalName[] = "local checkpoint";

// Returns the folder of local checkpoints. `given` is the folder that the worker chooses for the
// job (MUSTER_LOCAL_CHECKPOINTS). local_checkpoint_directory, if set, replaces its parent folder.
// Without `given`: a folder of the user in /dev/shm, named after the checkpoint directory.
LocalStorage local_storage(const TrainConfig& config, const std::string& given);

// Called on one thread at a time. A group error ends the job at the next call; any other error is
// the same on all ranks.
class LocalCheckpoints {
 public:
  // `groups` outlives it.
  LocalCheckpoints(const LocalStorage& storage, int64_t file_bytes, ProcessGroups& groups);

  // Creates the folder and connects with the other ranks. Called first. An error that is not the
  // group's explains why there are no local checkpoints; then no other function may be called. Adds
  // a line to `notes` if there is no second copy.
  absl::Status open(std::vector<std::string>& notes);

  // Called by every rank; `blocks` are used on writers only. After an error the earlier save
  // remains.
  absl::Status save(const CheckpointInfo& info, const CheckpointLayout& layout,
                    const CheckpointBlocks& blocks);

  struct Restored {
    CheckpointInfo info;
    std::string from;  // "own copies; 2 files from rank 4's node"; set on rank 0
  };
  // Restores, on all writers, the newest whole save of step `oldest` (rank 0's) or later that
  // `judge` accepts; rank 0 calls it, and its error skips a save. nullopt if there is none: the
  // blocks are then undefined. Adds lines for the user to rank 0's `notes`.
  absl::StatusOr<std::optional<Restored>> restore(const CheckpointLayout& layout,
                                                  const CheckpointBlocks& blocks, int64_t oldest,
                                                  const CheckpointJudge& judge,
                                                  std::vector<std::string>& notes);

  // Removes all saves of this node. Requires: no save is in progress.
  void remove_saves() const;
  // Removes this node's folder when the job has completed on all ranks. If a rank is lost before,
  // the next attempt needs the saves, and they remain.
  void remove();

 private:
  struct Trial;

  bool removes_saves() const;  // whether this rank removes its node's saves
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
  GroupPeers peers_;  // of `group_`
  const Mesh mesh_;
  std::optional<LocalNodes> nodes_;  // since open()
  // The rounds of transfers to keepers in a save; `file` is unused.
  std::vector<std::vector<FileTransfer>> copy_rounds_;
};

}  // namespace muster::trainer
