// What ranks tell each other before the first step: start-up checks, and copies.
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

// To be asked before anything else: ranks with other meshes would wait for each other in vain. Fails on every rank with InvalidArgument
// when a rank has another config than rank 0, or a build that computes otherwise: the sentence names the first such rank, the first
// key that differs and both values. Else the group's errors.
absl::Status check_same_config(ProcessGroups& groups, const TrainConfig& config);

// The same of what ranks begin with: when a rank has other data (TrainingData::fingerprint) than rank 0, or other parameters than the
// first rank along data, which has the same shards. The sentence names both, and the first parameter. They would otherwise drift
// in silence.
absl::Status check_agreement(ProcessGroups& groups, uint64_t data_fingerprint,
                             RankModel& rank_model);

// Where a checkpoint was made.
struct RestoredAt {
  int64_t step = 0;      // steps completed
  uint64_t samples = 0;  // of the data set, consumed by then
};

// Brings every rank to the newest checkpoint that is whole for all of them and says which; none when there is none. The ranks that
// are first along `data` read what they hold, and nothing else: `readers` are all of them, null where one has all. Each then broadcasts along data, so that
// the disk is read once, and replicas need not share its file system. Where a rank cannot restore, all fail with the same code.
// Lines about damaged checkpoints go to `log` on rank 0, which asks `judge` (checkpoint.h).
absl::StatusOr<std::optional<RestoredAt>> restore_newest(ProcessGroup& data,
                                                         CheckpointPeers* readers,
                                                         const CheckpointStore& store,
                                                         const CheckpointJudge& judge,
                                                         RankModel& rank_model, std::ostream& log);

// The end of it, for who has restored otherwise: ranks that are not first along `data` get what that one has, or its error's code.
absl::StatusOr<std::optional<RestoredAt>> share_restored(
    ProcessGroup& data, const absl::StatusOr<std::optional<RestoredAt>>& restored,
    RankModel& rank_model);

}  // namespace muster::trainer
