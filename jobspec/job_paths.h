// The paths of a job. Pure.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "jobspec/resolve.h"
#include "jobspec/settings/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// Returns the absolute path of the value `path` of a key: "~/" and the working directory are those
// of `options`. Returns "" for "", the address for an address of an object store, and
// InvalidArgument for an address of another scheme.
absl::StatusOr<std::string> absolute_path(std::string_view key, const std::string& path,
                                          const LaunchOptions& options);

inline constexpr char kSavedPlanKey[] = "compiled_trainstep_file";
// Does the same for the value of kSavedPlanKey, which may not be an address.
absl::StatusOr<std::string> saved_plan_path(const std::string& path, const LaunchOptions& options);

// Fills in every path of the config; returns the job's output folder.
absl::StatusOr<std::string> read_paths(SettingsReader& reader, const LaunchOptions& options,
                                       trainer::TrainConfig& train);

}  // namespace muster::jobspec
