// A run's inputs in object stores: token shards and parameters.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include <absl/status/statusor.h>

#include "common/objects/object_cache.h"
#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// Prints lines about transfers to `out`: when one begins, and every kFetchReportInterval. `on_data`
// (may be null) is called while one makes progress.
constexpr Duration kFetchReportInterval = std::chrono::seconds(10);
FetchEvents report_fetch(const std::string& url, std::ostream& out,
                         std::function<void()> on_data = nullptr);

// Returns the config with folders of local copies (common/objects/object_cache.h) instead of
// addresses of data sets. Blocks while it fetches; one process of a node transfers, the others
// wait. Errors name key and address: bad input as of ObjectStore; Internal for a store that does
// not respond.
absl::StatusOr<TrainConfig> with_local_data(const TrainConfig& config, std::ostream& out,
                                            std::function<void()> on_data = nullptr);
// The same for load_parameters_path, which only a run without a checkpoint needs.
absl::StatusOr<TrainConfig> with_local_parameters(const TrainConfig& config, std::ostream& out,
                                                  std::function<void()> on_data = nullptr);

// For a check before the job starts: data sets are replaced by local copies if these are current.
// Otherwise the stores are only queried for the inputs, and the result lacks these keys: the ranks
// check what they fetch.
absl::StatusOr<TrainConfig> with_known_inputs(const TrainConfig& config);

}  // namespace muster::trainer
