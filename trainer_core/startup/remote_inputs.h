// A run's inputs in object stores: token shards and parameters.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include <absl/status/statusor.h>

#include "common/objects/object_cache.h"
#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// The time between two lines about a transfer.
constexpr Duration kFetchReportInterval = std::chrono::seconds(10);
// Returns callbacks that print lines about the transfer of `url` to `out`: when it begins, when it
// ends, and every kFetchReportInterval. They call `on_data` (may be null) when data arrives.
FetchEvents report_fetch(const std::string& url, std::ostream& out,
                         std::function<void()> on_data = nullptr);

// Returns the config with folders of local copies (common/objects/object_cache.h) instead of
// addresses of data sets. Blocks while it fetches; one process of a node transfers, the others
// wait. Errors name the key and the address. Returns Internal for a store that does not respond,
// and ObjectStore's errors for bad input.
absl::StatusOr<TrainConfig> with_local_data(const TrainConfig& config, std::ostream& out,
                                            std::function<void()> on_data = nullptr);
// The same for load_parameters_path, which only a run without a checkpoint needs.
absl::StatusOr<TrainConfig> with_local_parameters(const TrainConfig& config, std::ostream& out,
                                                  std::function<void()> on_data = nullptr);

// Returns the config for a check before the job starts. Transfers nothing. Replaces data sets by
// their local copies if these are current. Checks that data sets without such a copy, and
// load_parameters_path, exist, and clears their keys; the ranks check the contents after fetching
// them.
absl::StatusOr<TrainConfig> with_cached_inputs(const TrainConfig& config);

}  // namespace muster::trainer
