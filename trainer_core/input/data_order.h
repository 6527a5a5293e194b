// The data order: everything that determines which tokens a training reads, and in which order. It
// consists of the keys on which the order of samples depends, and of the identities of the shards.
// A checkpoint stores the data order together with its position in the data, because the position
// has no meaning in another order. A run that resumes compares the stored order with its own.
// Settings that only determine when training ends, or how samples are divided among ranks and
// steps, are not part of the order.
//
//   {"dataset_type": "shards", "max_target_length": 2048, "packing": true,
//    "enable_data_shuffling": true, "eval_holdout_fraction": 0.0, "data_shuffle_seed": 0,
//    "reuse_example_batch": false,
//    "dataset_path": [{"folder": "/corpus", "share": 1.0, "tokens": 81920, "documents": 120,
//                      "checksum": "2d06800538d394c2"}]}
//
// The keys of fine-tuning (use_sft, sft_…) are present only with use_sft, data_shuffle_seed only if
// random numbers are drawn from it, and sample_begin_id only if all data sets have the same
// TokenIndex::begin_id. Synthetic data has no order, so only its dataset_type is stored.
#pragma once

#include <cstdint>
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

// Returns the data order as JSON. Requires that `shares` is the parsed dataset_path, and that
// `datasets` are the data sets of `shares`, in the same order.
nlohmann::json data_order(const TrainConfig& config, const std::vector<DataShare>& shares,
                          const std::vector<std::shared_ptr<const TokenDataset>>& datasets);

// Returns the token with which the samples of an order begin; -1: none.
int32_t sample_begin_id(const nlohmann::json& order);

// Returns the first difference between two orders, such as "data_shuffle_seed was 0 and is 1";
// empty if they are equal. Another path of the same data is not a difference. `then` may be any
// JSON.
std::string data_order_difference(const nlohmann::json& then, const nlohmann::json& now);

// Decides whether a run with the data order `now` may resume from a checkpoint. Returns a sentence
// for the log of the run, usually empty. Returns InvalidArgument with the difference if the orders
// differ and config.resume_with_other_data is false.
absl::StatusOr<std::string> judge_data_order(const TrainConfig& config,
                                             const CheckpointInfo& checkpoint,
                                             const nlohmann::json& now);

}  // namespace muster::trainer
