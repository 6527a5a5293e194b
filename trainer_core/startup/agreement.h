// The checks and copies among the ranks before the first step.
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

// Checks that all ranks have the same config, and builds that compute the same results. Called
// before any other collective, because ranks with different meshes would wait for each other
// forever. If a rank differs from rank 0, returns InvalidArgument on every rank, with the first
// such rank, the first key that differs and both values. Also returns the errors of the group.
absl::Status check_same_config(ProcessGroups& groups, const TrainConfig& config);

// Checks that all ranks start with the same data and parameters; otherwise they would diverge
// without an error. Returns InvalidArgument on every rank, with both ranks and the first parameter,
// if a rank has other data than rank 0 (TrainingData::fingerprint), or other parameters than the
// first rank along the data axis with the same shards. Also returns the errors of the group.
absl::Status check_agreement(ProcessGroups& groups, uint64_t data_fingerprint,
                             RankModel& rank_model);

// The position in the training at which a checkpoint was saved.
struct RestoredAt {
  int64_t step = 0;              // completed steps
  uint64_t samples = 0;          // samples of the data that these steps have consumed
  EvalProgress evaluation = {};  // on rank 0 only
  SpikeState spikes = {};        // on rank 0 only
};

// Restores the newest checkpoint that all ranks can read, and returns its position; nullopt if
// there is none. The first rank of each group `data` along the data axis reads its shards and
// broadcasts them to the group. So the disk is read once, and other ranks need no access to its
// file system. `readers` are these first ranks; null: there is only one. If a rank cannot restore,
// all ranks return an error with the same code. On rank 0, `log` receives lines about damaged
// checkpoints, and `judge` (checkpoint.h) decides whether a checkpoint is usable.
absl::StatusOr<std::optional<RestoredAt>> restore_newest(ProcessGroup& data,
                                                         CheckpointPeers* readers,
                                                         const CheckpointStore& store,
                                                         const CheckpointJudge& judge,
                                                         RankModel& rank_model, std::ostream& log);

// Broadcasts the state of the first rank of `data`, or the code of its error, to the other ranks of
// the group. This is the last part of restore_newest(), for callers that restore from other
// sources. `restored` is used on the first rank only.
absl::StatusOr<std::optional<RestoredAt>> share_restored(
    ProcessGroup& data, const absl::StatusOr<std::optional<RestoredAt>>& restored,
    RankModel& rank_model);

}  // namespace muster::trainer
