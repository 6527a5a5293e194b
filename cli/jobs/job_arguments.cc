#include "cli/jobs/job_arguments.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "cli/jobs/rank_variables.h"
#include "cli/jobs/saved_plan_start.h"
#include "cli/run/pasted_command.h"
#include "cli/run/this_machine.h"
#include "cli/run/user_cache.h"
#include "cli/terminal/terminal.h"
#include "common/job/gpu.h"
#include "common/job/limits.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "common/time/time.h"
#include "daemon/help.h"
#include "jobspec/dialects/dialect.h"
#include "jobspec/dialects/launcher.h"
#include "jobspec/dialects/variables.h"
#include "jobspec/files/value.h"
#include "jobspec/program_job.h"

namespace muster::cli {
namespace {

// Far above the coordinator's limit, which has its own error.
constexpr int64_t kRanksMax = 1'000'000;

std::string text_of(const char* value) { return value == nullptr ? "" : value; }

std::string user_name() {
  std::array<char, 16 << 10> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(getuid(), &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
    return found->pw_name;
  }
  return absl::StrCat("uid-", getuid());
}

std::vector<std::pair<std::string, std::string>> own_environment() {
  std::vector<std::pair<std::string, std::string>> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) {
      variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return variables;
}

// Names a run without a name by its content and the time.
std::string name_with_time(const std::string& what) {
  const time_t now = wall_clock_unix_ns() / 1'000'000'000;
  tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> stamp{};
  strftime(stamp.data(), stamp.size(), "%Y%m%d-%H%M%S", &utc);
  return absl::StrCat(what, "-", stamp.data());
}

std::string default_run_name(const jobspec::Config& config) {
  std::string model = "run";
  const auto setting = config.settings.find("model_name");
  if (setting != config.settings.end() && setting->second.value.is_string() &&
      setting->second.value != "default") {
    const auto name = setting->second.value.get<std::string>();
    if (!name.empty()) model = name;
  }
  return name_with_time(model);
}

constexpr size_t kTextShown = 100;

absl::StatusOr<std::string> working_directory_of(const JobArguments& arguments) {
  if (!arguments.working_directory.empty()) {
    const std::string& given = arguments.working_directory;
    if (auto status = check_text("--working-directory", given); !status.ok()) return status;
    if (absl::StartsWith(given, "/")) return given;
    return absl::InvalidArgumentError(
        absl::StrCat("--working-directory ", given, ": must be an absolute path"));
  }
  std::error_code error;
  auto here = std::filesystem::current_path(error).string();
  if (error) return absl::NotFoundError("the working directory does not exist any more");
  if (auto status = check_text("the working directory", here); !status.ok()) return status;
  return here;
}

// Returns a warning per variable for the ranks that has no effect on a line of `dialect`.
std::vector<std::string> without_effect(const std::vector<std::string>& environment,
                                        jobspec::Dialect dialect) {
  jobspec::Environment given;
  for (const std::string& text : environment) {
    const size_t equals = text.find('=');
    // NAME alone is the user's own variable, which is checked with the others.
    if (equals != std::string::npos)
      given.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return jobspec::exported_without_effect(given, dialect);
}

// Adds the user's NCCL_… variables for ranks that do not inherit them.
void pass_nccl_variables(std::map<std::string, std::string>& variables) {
  for (const auto& [name, value] : own_environment()) {
    if (absl::StartsWith(name, "NCCL_") && jobspec::is_utf8(value))
      variables.try_emplace(name, value);
  }
}

absl::StatusOr<jobspec::Config> load_with(jobspec::ConfigSource source, jobspec::Dialect dialect,
                                          std::vector<std::string> warnings) {
  source.environment = own_environment();
  for (std::string& warning : jobspec::exported_without_effect(source.environment, dialect))
    warnings.push_back(std::move(warning));
  if (auto shipped = shipped_base_yml(); shipped.ok()) source.shipped_base = *std::move(shipped);
  auto config = jobspec::load_config(source);
  if (config.ok() && !config->shipped_base_note.empty() && is_first_time("shipped-base-yml"))
    warnings.push_back(config->shipped_base_note);
  if (config.ok())
    config->warnings.insert(config->warnings.begin(), warnings.begin(), warnings.end());
  return config;
}

// Loads a command line of Pax or AXLearn.
absl::StatusOr<jobspec::Config> load_translated(const std::vector<std::string>& words,
                                                std::vector<std::string> warnings,
                                                bool is_for_plan) {
  auto translation = jobspec::translate(words, own_environment());
  if (!translation.ok()) return translation.status();
  jobspec::ConfigSource source{.path = translation->config_path,
                               .flags = std::move(translation->settings),
                               .overrides = std::move(translation->overrides),
                               .environment = {},
                               .is_for_plan = is_for_plan};
  if (source.path.empty()) {
    auto shipped = shipped_base_yml();
    if (!shipped.ok()) return shipped.status();
    source.path = *std::move(shipped);
  }
  warnings.insert(warnings.end(), translation->warnings.begin(), translation->warnings.end());
  return load_with(std::move(source), jobspec::dialect_of(words), std::move(warnings));
}

}  // namespace

absl::Status check_text(const std::string& what, const std::string& text) {
  if (jobspec::is_utf8(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " ", printable(text, kTextShown), ": must be UTF-8"));
}

void add_config_arguments(CLI::App& command, JobArguments& arguments, bool required) {
  command
      .add_option("config", arguments.config_path,
                  "The config: configs/base.yml, or a file that inherits from it; not needed for "
                  "command lines of Pax (--fdl_config=…) and AXLearn (--module=…)")
      ->required(required)
      ->type_name("FILE.yml");
  command
      .add_option(kOverrides, arguments.overrides,
                  "Any key of the config (`muster config show` lists them); the last value of a "
                  "repeated key wins")
      ->type_name("key=value");
}

void add_rank_options(CLI::App& command, JobArguments& arguments) {
  auto* ranks =
      daemon::add_count(command, "--ranks", arguments.ranks,
                        "Ranks on one machine (default: its GPUs if an ici_*_parallelism key is "
                        "-1, else the product of these keys), instead of --nodes and "
                        "--ranks-per-node",
                        1, kRanksMax);
  add_node_options(command, arguments, "--nodes");
  ranks->excludes(command.get_option("--nodes"))->excludes(command.get_option("--ranks-per-node"));
}

void add_node_options(CLI::App& command, JobArguments& arguments, const char* nodes) {
  daemon::add_count(command, nodes, arguments.nodes, "Number of machines, without spares", 1,
                    kRanksMax);
  daemon::add_count(command, "--ranks-per-node", arguments.ranks_per_node,
                    "Ranks per machine (default: its GPUs according to Slurm, or if an "
                    "ici_*_parallelism key is -1; else the product of these keys)",
                    1, kRanksMax);
  daemon::add_count(command, "--gpus-per-rank", arguments.gpus_per_rank,
                    "Exclusive GPUs per rank (default: one with hardware=gpu, else a slot's share "
                    "of the node's GPUs); 0: ranks share all GPUs of the node",
                    0, kGpusPerNodeMax);
  daemon::add_list(
      command, "--env", arguments.environment, "NAME[=VALUE]",
      "Environment variable for every rank; may be repeated. NAME alone passes your own value: use "
      "it for secrets, because others can see command lines and scripts");
}

void add_recovery_options(CLI::App& command, JobArguments& arguments) {
  daemon::add_count(
      command, "--spares", arguments.spares,
      "Additional workers reserved for the job, to replace a lost one at once; the key spares", 0,
      kNodesMax);
  daemon::add_count(command, "--min-nodes", arguments.min_nodes,
                    "Number of --nodes with which the job may continue after a fault (default: "
                    "all); the key min_nodes",
                    1, kNodesMax);
}

void add_program_options(CLI::App& command, JobArguments& arguments) {
  CLI::Option* config = command.get_option("config");
  const auto take = [&arguments, config](const std::string& words) {
    arguments.program = words;
    config->required(false);
  };
  command.add_option_function<std::string>(kProgram, take)->group("");
  command
      .add_option(
          "--name", arguments.name,
          "For a program behind --: the job's name (default: the program's name and the time)")
      ->type_name("NAME");
  command
      .add_option("--output", arguments.output_directory,
                  "For a program behind --: the job's folder for logs (default: ./NAME)")
      ->type_name("FOLDER");
  arguments.program_options.declare(command);
}

std::vector<std::string> words_of_options(const JobArguments& arguments) {
  std::vector<std::string> words;
  const auto add_text = [&](const char* flag, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {flag, value});
  };
  const auto add_number = [&](const char* flag, const std::optional<int32_t>& number) {
    if (number) words.insert(words.end(), {flag, absl::StrCat(*number)});
  };
  add_number("--spares", arguments.spares);
  add_number("--min-nodes", arguments.min_nodes);
  add_number("--gpus-per-rank", arguments.gpus_per_rank);
  for (const std::string& variable : arguments.environment) add_text("--env", variable);
  add_text("--output", arguments.output_directory);
  add_text("--name", arguments.name);
  const std::vector<std::string> more = arguments.program_options.words();
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void add_working_directory_option(CLI::App& command, JobArguments& arguments) {
  command
      .add_option("--working-directory", arguments.working_directory,
                  "Working directory on the workers' machines, for relative paths and a program "
                  "behind -- (default: this folder)")
      ->type_name("FOLDER");
}

absl::StatusOr<v1::JobSpec> load_program(const JobArguments& arguments) {
  const auto command = words_of_program(arguments.program);
  if (!command.ok()) return command.status();
  auto working_directory = working_directory_of(arguments);
  if (!working_directory.ok()) return working_directory.status();
  if (auto status = check_text("--output", arguments.output_directory); !status.ok()) return status;
  v1::JobSpec job = jobspec::program_defaults();
  job.mutable_command()->Assign(command->begin(), command->end());
  job.set_working_directory(*std::move(working_directory));
  job.set_name(arguments.name);
  job.set_output_directory(arguments.output_directory);
  job.set_user(user_name());
  job.set_nodes(arguments.nodes.value_or(job.nodes()));
  job.set_ranks_per_node(arguments.ranks ? *arguments.ranks
                                         : arguments.ranks_per_node.value_or(job.ranks_per_node()));
  job.set_priority(arguments.priority);
  job.set_spares(arguments.spares.value_or(job.spares()));
  job.set_min_nodes(arguments.min_nodes.value_or(job.min_nodes()));
  job.set_gpus_per_rank(arguments.gpus_per_rank.value_or(job.gpus_per_rank()));
  arguments.program_options.apply(job);
  auto environment = rank_variables(arguments.environment);
  if (!environment.ok()) return environment.status();
  job.mutable_environment()->insert(environment->begin(), environment->end());
  // The process id separates two runs of the same second.
  const std::string default_name =
      arguments.default_name.empty()
          ? absl::StrCat(name_with_time(jobspec::program_name(*command)), "-", getpid())
          : arguments.default_name;
  return jobspec::program_job(std::move(job), default_name);
}

absl::StatusOr<jobspec::Config> load_config(const JobArguments& arguments) {
  if (arguments.config) return *arguments.config;
  std::vector<std::string> words = arguments.overrides;
  words.insert(words.begin(), arguments.config_path);
  const bool has_flags = std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return absl::StartsWith(word, "--") || !jobspec::why_word_without_effect(word).empty();
  });
  if (has_flags || jobspec::dialect_of(words) != jobspec::Dialect::kMaxText)
    return load_translated(words, without_effect(arguments.environment, jobspec::dialect_of(words)),
                           arguments.is_for_plan);
  if (arguments.config_path.find('=') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("missing config before ", arguments.config_path,
                     ": configs/base.yml, or a file that inherits from it"));
  }
  return load_with({.path = arguments.config_path,
                    .flags = {},
                    .overrides = arguments.overrides,
                    .environment = {},
                    .is_for_plan = arguments.is_for_plan},
                   jobspec::Dialect::kMaxText,
                   without_effect(arguments.environment, jobspec::Dialect::kMaxText));
}

absl::StatusOr<jobspec::ResolvedJob> resolve_job(const jobspec::Config& config,
                                                 const JobArguments& arguments) {
  jobspec::LaunchOptions options;
  options.nodes = arguments.ranks ? std::optional<int32_t>(1) : arguments.nodes;
  options.ranks_per_node = arguments.ranks ? arguments.ranks : arguments.ranks_per_node;
  options.spares = arguments.spares;
  options.min_nodes = arguments.min_nodes;
  options.gpus_per_rank = arguments.gpus_per_rank;
  options.own_workers = arguments.own_workers;
  options.node_gpus = arguments.node_gpus.value_or(0);
  options.planned_cpu = arguments.planned_cpu;
  auto working_directory = working_directory_of(arguments);
  if (!working_directory.ok()) return working_directory.status();
  options.working_directory = *std::move(working_directory);
  options.home = text_of(std::getenv("HOME"));
  options.default_run_name =
      arguments.default_name.empty() ? default_run_name(config) : arguments.default_name;
  options.user = user_name();
  options.priority = arguments.priority;
  auto environment = rank_variables(arguments.environment);
  if (!environment.ok()) return environment.status();
  options.environment = *std::move(environment);
  if (!arguments.own_workers) pass_nccl_variables(options.environment);
  if (arguments.starts_job && has_saved_plan(config)) return resolve_with_plan(config, options);
  describe_this_machine(config, !arguments.node_gpus, options);
  return jobspec::resolve_job(config, options);
}

absl::StatusOr<jobspec::ResolvedJob> load_job(JobArguments arguments) {
  if (!arguments.name.empty()) {
    return absl::InvalidArgumentError(
        "--name needs a program behind --; for a config, set run_name=NAME");
  }
  if (!arguments.output_directory.empty()) {
    return absl::InvalidArgumentError(
        "--output needs a program behind --; for a config, set base_output_directory=FOLDER");
  }
  if (auto status = arguments.program_options.check_none_given(); !status.ok()) return status;
  const auto config = load_config(arguments);
  if (!config.ok()) return config.status();
  arguments.starts_job = true;
  auto job = resolve_job(*config, arguments);
  if (!job.ok()) return job.status();
  for (const std::string& warning : job->warnings) warn(warning);
  return job;
}

}  // namespace muster::cli
