// What decides which tokens a training sees, and in which order: the keys that the order of samples depends on, and which shards
// they are of. A checkpoint keeps it beside the position in the data, which means nothing in another order; a run that goes on
// compares it with its own. What only says where the training ends, or how samples are divided among ranks and steps, is not part
// of it.
//
//   {"dataset_type": "shards", "max_target_length": 2048, "packing": true, "enable_data_shuffling": true,
//    "eval_holdout_fraction": 0.0, "data_shuffle_seed": 0, "reuse_example_batch": false,
//    "dataset_path": [{"folder": "/corpus", "share": 1.0, "tokens": 81920, "documents": 120, "checksum": "2d06800538d394c2"}]}
//
// data_shuffle_seed is there when something is drawn with it. Synthetic data has no order: its type is all that is said.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/base/data_paths.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/checkpoint/manifest.h"
#include "trainer_core/data/token_dataset.h"

namespace muster::trainer {

// `datasets` are those of `shares`, which are what dataset_path says.
nlohmann::json data_order(const TrainConfig& config, const std::vector<DataShare>& shares,
                          const std::vector<std::shared_ptr<const TokenDataset>>& datasets);

// The first thing in which two orders differ: "data_shuffle_seed was 0 and is 1". Empty where none does. A folder that was moved
// is no difference. `then` may be any JSON.
std::string data_order_difference(const nlohmann::json& then, const nlohmann::json& now);

// Whether a run whose data is `now` may go on from a checkpoint: a sentence for its log, mostly empty, or InvalidArgument that
// names the difference, unless config.resume_with_other_data.
absl::StatusOr<std::string> judge_data_order(const TrainConfig& config,
                                             const CheckpointInfo& checkpoint,
                                             const nlohmann::json& now);

}  // namespace muster::trainer
