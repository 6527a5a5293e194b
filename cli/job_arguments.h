// The arguments by which run, submit, decode and config say which job is meant: a .yml, key=value, and the number of ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/statusor.h>

#include "jobspec/resolve.h"

namespace muster::cli {

// The argument that takes key=value.
inline constexpr char kOverrides[] = "overrides";

struct JobArguments {
  std::string config_path;
  std::vector<std::string> overrides;
  std::optional<int32_t> nodes;
  std::optional<int32_t> ranks_per_node;
  std::optional<int32_t> ranks;
  int32_t priority = 0;
  std::vector<std::string> environment;  // NAME=VALUE, or NAME alone: our own value
};

void add_config_arguments(CLI::App& command, JobArguments& arguments, bool required);
void add_rank_options(CLI::App& command, JobArguments& arguments);

// Loads and resolves with this process's working directory, environment, user and clock.
absl::StatusOr<jobspec::Config> load_config(const JobArguments& arguments);
absl::StatusOr<jobspec::ResolvedJob> resolve_job(const jobspec::Config& config,
                                                 const JobArguments& arguments);
// Both, and the warnings on stderr.
absl::StatusOr<jobspec::ResolvedJob> load_job(const JobArguments& arguments);

}  // namespace muster::cli
