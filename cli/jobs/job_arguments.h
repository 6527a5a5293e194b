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
  std::optional<int32_t> spares;
  std::optional<int32_t> min_nodes;
  std::optional<int32_t> gpus_per_rank;
  bool own_workers = false;  // the command starts workers for this job alone
  int32_t priority = 0;
  std::vector<std::string> environment;  // NAME=VALUE, or NAME alone: our own value
  // Of a program of the user's own, in place of config and overrides.
  std::string
      program;  // its words as a JSON array: CLI11 would take some of them apart; empty: there is none
  std::string name;
  std::string default_name;  // of a run without any; empty: what runs, and when
  std::string output_directory;
  std::string working_directory;  // absolute; empty: this process's
  std::optional<int32_t> restarts;
  std::optional<int64_t> hang_after_seconds;

  bool is_program() const { return !program.empty(); }
};

void add_config_arguments(CLI::App& command, JobArguments& arguments, bool required);
// --ranks, of one machine, or else those below.
void add_rank_options(CLI::App& command, JobArguments& arguments);
// `nodes`: the names of that option; --ranks-per-node, --env.
void add_node_options(CLI::App& command, JobArguments& arguments, const char* nodes);
// For commands that start a job.
void add_recovery_options(CLI::App& command, JobArguments& arguments);
// For commands that take `-- COMMAND ARGS…`, which arrange_pasted() hands over as this option.
inline constexpr char kProgram[] = "--program";
void add_program_options(CLI::App& command, JobArguments& arguments);

// For jobs that run on other machines.
void add_working_directory_option(CLI::App& command, JobArguments& arguments);

// A job travels as JSON and as protobuf. InvalidArgument names `what`, as "--output", and the text.
absl::Status check_text(const std::string& what, const std::string& text);

// Loads and resolves with this process's working directory, environment, user and clock.
absl::StatusOr<jobspec::Config> load_config(const JobArguments& arguments);
absl::StatusOr<jobspec::ResolvedJob> resolve_job(const jobspec::Config& config,
                                                 const JobArguments& arguments);
// Both, and the warnings on stderr.
absl::StatusOr<jobspec::ResolvedJob> load_job(const JobArguments& arguments);
// The job of a program; requires that there is one.
absl::StatusOr<v1::JobSpec> load_program(const JobArguments& arguments);

}  // namespace muster::cli
