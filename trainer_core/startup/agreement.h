// Start-up checks and copies among the ranks, before the first step.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <span>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/rank/rank_model.h"

namespace muster::trainer {

// Checks that all ranks have the same config and a build that computes the same. Called before any
// other collective, because ranks with different meshes would wait for each other forever. Returns
// InvalidArgument on every rank if a rank differs from rank 0: the message names the first such
// rank, the first key that differs and both values. Other errors are the group's.
absl::Status check_same_config(ProcessGroups& groups, const TrainConfig& config);

// Checks what the ranks start with. Returns InvalidArgument on every rank if a rank has other data
// (TrainingData::fingerprint) than rank 0, or other parameters than the first rank along data with
// the same shards; the message names both ranks and the first parameter. Without this check the
// ranks would diverge silently. Other errors are the group's.
absl::Status check_agreement(ProcessGroups& groups, uint64_t data_fingerprint,
                             RankModel& rank_model);

// The point of the training at which a checkpoint was saved.
struct RestoredAt {
  int64_t step = 0;      // steps completed
  uint64_t samples = 0;  // of the data set, consumed by then
};

// Restores the newest checkpoint that is whole on all ranks and returns its position; nullopt if
// there is none. The first ranks along `data` read their shards, and nothing else. `readers` are
// all of these ranks; null if one rank holds everything. Each of them then broadcasts along `data`,
// so that the disk is read once and the other replicas need no access to its file system. If a rank
// cannot restore, all ranks fail with the same code. On rank 0, lines about damaged checkpoints go
// to `log`, and `judge` (checkpoint.h) decides whether a checkpoint is usable.
absl::StatusOr<std::optional<RestoredAt>> restore_newest(ProcessGroup& data,
                                                         CheckpointPeers* readers,
                                                         const CheckpointStore& store,
                                                         const CheckpointJudge& judge,
                                                         RankModel& rank_model, std::ostream& log);

// The last part of it, for callers that restore in another way: broadcasts the state of the first
// rank along `data`, or the code of its error, to the other ranks along `data`.
absl::StatusOr<std::optional<RestoredAt>> share_restored(
    ProcessGroup& data, const absl::StatusOr<std::optional<RestoredAt>>& restored,
    RankModel& rank_model);

}  // namespace muster::trainer
