// Arguments of run, submit, decode and config that describe a job: a .yml, key=value, and the
// number of ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/statusor.h>

#include "cli/jobs/program_options.h"
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
  bool own_workers = false;  // The command starts workers for this job alone.
  // The result of load_config(), if a caller has loaded it already.
  std::optional<jobspec::Config> config;
  // GPUs of each node, for commands whose nodes are other machines (node_gpus.h). Unset: this
  // machine's, with own_workers.
  std::optional<int32_t> node_gpus;
  int32_t priority = 0;
  // NAME=VALUE, or NAME alone: the value in this process's environment.
  std::vector<std::string> environment;
  // The fields of a user's own program, which replaces config and overrides.
  // The words of the program as a JSON array, because CLI11 would split some of them; empty: no
  // program.
  std::string program;
  std::string name;
  std::string default_name;  // For a run without a name; empty: the program and the time.
  std::string output_directory;
  std::string working_directory;  // Absolute; empty: the one of this process.
  ProgramOptions program_options;

  bool is_program() const { return !program.empty(); }
};

void add_config_arguments(CLI::App& command, JobArguments& arguments, bool required);
// Adds --ranks for one machine; for several, use add_node_options().
void add_rank_options(CLI::App& command, JobArguments& arguments);
// Adds --ranks-per-node, --env, and the node count under the option names `nodes`.
void add_node_options(CLI::App& command, JobArguments& arguments, const char* nodes);
// For commands that start a job.
void add_recovery_options(CLI::App& command, JobArguments& arguments);
// For commands that take `-- COMMAND ARGS…`, which arrange_pasted_command() passes as this option.
inline constexpr char kProgram[] = "--program";
void add_program_options(CLI::App& command, JobArguments& arguments);

// Returns the options of the functions above that were given, so that another command submits the
// same job: without the ranks, the config and the program.
std::vector<std::string> words_of_options(const JobArguments& arguments);

// For jobs that run on other machines.
void add_working_directory_option(CLI::App& command, JobArguments& arguments);

// Requires valid UTF-8: a job travels as JSON and as protobuf. InvalidArgument names `what`, for
// example "--output", and the text.
absl::Status check_text(const std::string& what, const std::string& text);

// Load and resolve a config with this process's working directory, environment, user and clock.
absl::StatusOr<jobspec::Config> load_config(const JobArguments& arguments);
absl::StatusOr<jobspec::ResolvedJob> resolve_job(const jobspec::Config& config,
                                                 const JobArguments& arguments);
// Loads and resolves the config, and prints the warnings to stderr.
absl::StatusOr<jobspec::ResolvedJob> load_job(const JobArguments& arguments);
// Returns the job of a program. Requires arguments.is_program().
absl::StatusOr<v1::JobSpec> load_program(const JobArguments& arguments);

}  // namespace muster::cli
