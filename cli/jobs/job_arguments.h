// The arguments of run, submit, decode and config that describe a job: a .yml file, key=value
// words, and the number of ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/statusor.h>

#include "cli/jobs/program_options.h"
#include "jobspec/resolve.h"

namespace muster::cli {

// The name of the positional argument for key=value words.
inline constexpr char kOverrides[] = "overrides";

// The values of these arguments.
struct JobArguments {
  std::string config_path;
  std::vector<std::string> overrides;
  std::optional<int32_t> nodes;
  std::optional<int32_t> ranks_per_node;
  std::optional<int32_t> ranks;
  std::optional<int32_t> spares;
  std::optional<int32_t> min_nodes;
  std::optional<int32_t> gpus_per_rank;
  bool is_for_plan = false;  // jobspec::ConfigSource
  bool own_workers = false;  // the command starts workers for this job alone
  bool no_plan = false;      // --no-plan (cli/plan/admission.h)
  bool starts_job = false;   // the job must match compiled_trainstep_file (saved_plan_start.h)
  // The result of load_config(), if a caller has loaded it already.
  std::optional<jobspec::Config> config;
  // GPUs of each node, for commands whose nodes are other machines (node_gpus.h). Unset: the GPUs
  // of this machine, with own_workers.
  std::optional<int32_t> node_gpus;
  jobspec::PlannedCpu planned_cpu;  // for a plan for CPUs
  int32_t priority = 0;
  // variables for the ranks: NAME=VALUE, or NAME alone for the value in this process's environment
  std::vector<std::string> environment;
  // The fields below are for a user's own program, which replaces config_path and overrides. The
  // program's command line as a JSON array of words, because CLI11 would split some words; empty:
  // no program.
  std::string program;
  std::string name;
  // used if `name` is empty; if empty, too: the program's name and the time
  std::string default_name;
  std::string output_directory;
  std::string working_directory;  // absolute; empty: this process's
  ProgramOptions program_options;

  bool is_program() const { return !program.empty(); }
};

// Adds the .yml file and the key=value words.
void add_config_arguments(CLI::App& command, JobArguments& arguments, bool required);
// Adds --ranks, for a job on one machine; for jobs on several machines see add_node_options().
void add_rank_options(CLI::App& command, JobArguments& arguments);
// Adds --ranks-per-node, --env, and the number of nodes with the option names `nodes`.
void add_node_options(CLI::App& command, JobArguments& arguments, const char* nodes);
// Adds the options for spares and the minimum of nodes, for commands that start a job.
void add_recovery_options(CLI::App& command, JobArguments& arguments);
// The option as which arrange_pasted_command() passes the words of `-- COMMAND ARGS…`.
inline constexpr char kProgram[] = "--program";
// Adds kProgram and the options of a program's job.
void add_program_options(CLI::App& command, JobArguments& arguments);

// Returns the words of all given options that the functions above declare, except for the ranks,
// the config and the program. Another command with these words submits the same job.
std::vector<std::string> words_of_options(const JobArguments& arguments);

// Adds --working-directory, for jobs that run on other machines.
void add_working_directory_option(CLI::App& command, JobArguments& arguments);

// Returns InvalidArgument, with `what` (for example "--output") and the text, if `text` is not
// valid UTF-8: a job is sent as JSON and as protobuf, which require it.
absl::Status check_text(const std::string& what, const std::string& text);

// The two functions below load and resolve a config with this process's working directory,
// environment, user and clock.
absl::StatusOr<jobspec::Config> load_config(const JobArguments& arguments);
absl::StatusOr<jobspec::ResolvedJob> resolve_job(const jobspec::Config& config,
                                                 const JobArguments& arguments);
// Loads and resolves the config, compares the job with the saved plan that it names, and prints the
// warnings to stderr.
absl::StatusOr<jobspec::ResolvedJob> load_job(JobArguments arguments);
// Returns the job that runs the user's program. Requires arguments.is_program().
absl::StatusOr<v1::JobSpec> load_program(const JobArguments& arguments);

}  // namespace muster::cli
