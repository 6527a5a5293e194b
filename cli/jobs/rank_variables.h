// The environment variables that a command gives to the ranks of a job.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::cli {

// Returns the variables that the options --env name: NAME=VALUE, or NAME alone for the value in
// this process's environment.
absl::StatusOr<std::map<std::string, std::string>> rank_variables(
    const std::vector<std::string>& options);

}  // namespace muster::cli
