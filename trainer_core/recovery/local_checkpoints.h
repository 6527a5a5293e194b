// Local checkpoints: every so many steps each node keeps what its ranks hold in memory-backed storage, and another node keeps a second
// copy, so that a lost rank or a lost node costs a few steps and no read from shared storage (Wang et al. 2023, "GEMINI: Fast Failure
// Recovery in Distributed Training with In-Memory Checkpoints"). All ranks of a job call the same functions in the same order: the
// writers (checkpointing.h) have what is kept, and any rank may keep a copy, or have one that is needed.
//
//   save:     all begin ──▶ writers: their files, on their own node ──▶ each to its keeper on the next node, who stores them ──▶ all
//             agree ──▶ the save before is removed
//   restore:  what lies where? ──▶ the newest save that is whole ──▶ each node verifies what it has ──▶ what a node wants and has not, or
//             has damaged, another one sends ──▶ all read their boxes ──▶ all agree, or the next older one
//
// While a save is written two are there; else one. A save that fails leaves the one before. It is told from the shared ones by its
// place alone: files, manifest and reading are theirs (checkpoint/local_store.h).
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

constexpr char kLocalName[] = "local checkpoint";  // of collectives, on the progress page

// `given`: the folder that the worker names for the job (MUSTER_LOCAL_CHECKPOINTS); local_checkpoint_directory has one of that name in it.
// Without either one of the user's own in /dev/shm, by the checkpoint directory.
LocalPlace local_place(const TrainConfig& config, const std::string& given);

// One thread at a time. An error of the group ends the job whoever asks next; any other is the same on all ranks.
class LocalCheckpoints {
 public:
  // `groups` outlives it.
  LocalCheckpoints(const LocalPlace& place, int64_t file_bytes, ProcessGroups& groups);

  // Makes the folder and meets the others. Before anything else. An error that is not the group's says why there are no local
  // checkpoints; then no other function may be called. A line in `notes` where there is no second copy.
  absl::Status open(std::vector<std::string>& notes);

  // Every rank; `blocks` are a writer's. After an error the save before is there.
  absl::Status save(const CheckpointInfo& info, const CheckpointLayout& layout,
                    const CheckpointBlocks& blocks);

  struct Restored {
    CheckpointInfo info;
    std::string from;  // for people: "own copies; 2 files from rank 4's node". Rank 0's
  };
  // Brings all writers to the newest whole save that `judge` takes (asked on rank 0, whose error passes one over) and that is of step
  // `oldest` (rank 0's) or a newer one; none when there is none: the blocks hold anything then. Lines for people in rank 0's `notes`.
  absl::StatusOr<std::optional<Restored>> restore(const CheckpointLayout& layout,
                                                  const CheckpointBlocks& blocks, int64_t oldest,
                                                  const CheckpointJudge& judge,
                                                  std::vector<std::string>& notes);

  // All saves of this node: none of them is to be restored. None is being made.
  void remove_saves() const;
  // Of this node, when the job has completed on all ranks. Where one is lost before, its next attempt needs them: they stay.
  void remove();

 private:
  struct Trial;

  bool cleans() const;  // of its node's ranks the one that removes
  absl::Status agree(const absl::Status& mine);
  absl::StatusOr<std::string> begin_save(int64_t step);
  absl::Status copy(const std::string& save, const std::string& own_part, absl::Status& local);
  absl::StatusOr<std::vector<LocalCandidate>> find(int64_t oldest, const CheckpointJudge& judge,
                                                   const CheckpointLayout& layout,
                                                   std::vector<std::string>& notes);
  void look(Trial& trial) const;
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
  GroupPeers peers_;  // the same group
  const Mesh mesh_;
  std::optional<LocalNodes> nodes_;  // since open()
  std::vector<std::vector<FileTransfer>>
      keeping_;  // who sends to whom in a save; `file` means nothing
};

}  // namespace muster::trainer
