// The frozen base of adapters (base/lora.h): its values from load_parameters_path, or random ones,
// in a rank's shards. They are not in checkpoints, so each start fills them in again, with the same
// bits.
#pragma once

#include <ostream>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/checkpoint/parameter_source.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/rank/rank_model.h"

namespace muster::trainer {

// The functions below encode parameters that are stored in blocks on `threads` threads; any number
// gives the same bits.
//
// Reads this rank's shards from a source, bucket by bucket. Returns an error for a value that is
// not finite in a parameter that is stored in blocks.
absl::Status read_base(const ParameterSource& source, RankModel& rank_model, int32_t threads);
// Does the same with load_parameters_path, as load_parameters() does (initial_parameters.h), and
// returns the hash of the base (checkpoint/adapters.h).
absl::StatusOr<std::string> load_base(const TrainConfig& config, RankModel& rank_model,
                                      int32_t threads, ProcessGroups& groups, std::ostream& out);
// Draws the values of draw_parameters(). Waits for the device.
void draw_base(const TrainConfig& config, RankModel& rank_model, int32_t threads);

}  // namespace muster::trainer
