// muster slurm submit: writes the script of a per-job run and passes it to sbatch.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "cli/jobs/job_arguments.h"
#include "cli/jobs/node_gpus.h"
#include "cli/jobs/saved_plan_start.h"
#include "cli/plan/admission.h"
#include "cli/run/preflight.h"
#include "cli/run/run_command.h"
#include "cli/slurm/slurm.h"
#include "cli/slurm/slurm_commands.h"
#include "cli/slurm/slurm_queue.h"
#include "cli/slurm/slurm_script.h"
#include "cli/slurm/slurm_setup.h"
#include "cli/terminal/terminal.h"
#include "common/files/file_write.h"
#include "common/job/limits.h"
#include "common/objects/object_cache.h"
#include "daemon/help.h"
#include "daemon/process.h"
#include "jobspec/dialects/dialect.h"

namespace muster::cli {
namespace {

constexpr int32_t kChainMax = 1000;  // sbatch's limit for array indices
constexpr auto kSbatchDeadline = std::chrono::seconds(60);
// Slurm schedules a new job at once or some seconds later; the command does not wait for that.
constexpr int kReasonTries = 8;
constexpr auto kReasonPeriod = std::chrono::milliseconds(250);

struct SlurmSubmitOptions {
  JobArguments job;
  SlurmOptions slurm;
  ScriptPlan plan;
  bool share_nodes = false;
  bool dry_run = false;
  bool no_check = false;
  bool json = false;
  std::optional<absl::StatusOr<std::string>> gpus_of_partitions;  // sinfo's answer
};

void add_words(std::vector<std::string>& command, const std::vector<std::string>& words) {
  command.insert(command.end(), words.begin(), words.end());
}

// Returns the user's command line, plus values that must be the same in each allocation of the job.
std::vector<std::string> run_words(const SlurmSubmitOptions& options, const v1::JobSpec& spec,
                                   const std::string& muster) {
  const JobArguments& job = options.job;
  const SlurmOptions& slurm = options.slurm;
  std::vector<std::string> words = {muster, "slurm", "run"};
  const auto add_text = [&](const char* name, const std::string& value) {
    if (!value.empty()) add_words(words, {name, value});
  };
  const auto add_number = [&](const char* name, const auto& number) {
    if (number) add_words(words, {name, absl::StrCat(*number)});
  };
  add_words(words, {"--nodes", absl::StrCat(spec.nodes()), "--ranks-per-node",
                    absl::StrCat(spec.ranks_per_node()), "--default-name", spec.name()});
  add_words(words, words_of_options(job));
  add_text("--container", slurm.container);
  for (const std::string& mount : slurm.mounts) add_text("--container-mounts", mount);
  add_text("--address", slurm.address);
  if (slurm.insecure) words.emplace_back("--insecure");
  add_number("--metrics-port", slurm.metrics_port);
  add_text("--metrics-folder", slurm.metrics_folder);
  if (slurm.no_requeue) words.emplace_back("--no-requeue");
  if (options.plan.chain > 1) words.emplace_back("--chain");
  add_words(words, {"--leave-seconds", absl::StrCat(slurm.leave_seconds)});
  add_number("--max-turns", slurm.allocations_max);
  if (job.no_plan) words.emplace_back("--no-plan");
  if (job.is_program()) {
    words.emplace_back("--");
    const auto program = nlohmann::json::parse(job.program, nullptr, /*allow_exceptions=*/false);
    add_words(words, program.get<std::vector<std::string>>());
    return words;
  }
  std::vector<std::string> config = job.overrides;
  config.insert(config.begin(), job.config_path);
  if (jobspec::dialect_of(config) != jobspec::Dialect::kMaxText) words.emplace_back("--");
  add_words(words, config);
  return words;
}

// Writes the script and creates its folder. Returns the path.
absl::StatusOr<std::string> write_script(const v1::JobSpec& spec, const std::string& text) {
  const std::string folder = local_output_folder(spec.output_directory());
  if (auto status = daemon::make_writable_directory(folder); !status.ok()) return status;
  const std::string path = absl::StrCat(folder, "/slurm.sub");
  if (auto status = write_file_atomically(path, text); !status.ok()) return status;
  return path;
}

// The partition that sbatch will use; empty: the default one.
std::string partition_of(const ScriptPlan& plan) {
  const char* variable = std::getenv("SBATCH_PARTITION");
  return plan.partition.empty() && variable != nullptr ? variable : plan.partition;
}

// Returns the nodes and GPUs of each partition, in the form of parse_slurm_gpus(). Calls sinfo
// once.
const absl::StatusOr<std::string>& gpus_of_partitions(SlurmSubmitOptions& options) {
  if (!options.gpus_of_partitions)
    options.gpus_of_partitions = output_of({"sinfo", "-h", "-o", "%P|%D|%G"}, kSlurmDeadline);
  return *options.gpus_of_partitions;
}

// If the number of ranks depends on the nodes' GPUs and no option states these, requests all GPUs
// that Slurm reports of the partition's nodes, and prints one line about it.
void take_gpus_of_partition(SlurmSubmitOptions& options) {
  const auto nodes = nodes_with_open_ranks(options.job);
  options.job.node_gpus = options.plan.gpus_per_node;
  if (!nodes || options.plan.gpus_per_node > 0) return;
  const std::string named = partition_of(options.plan);
  options.job.node_gpus = 0;
  if (!options.plan.more.empty()) {
    note(unknown_gpus_sentence("the options of --sbatch may select other nodes or GPUs"));
    return;
  }
  const auto& text = gpus_of_partitions(options);
  if (!text.ok()) return note(unknown_gpus_sentence(std::string(text.status().message())));
  const int32_t gpus = gpus_on_every_node(parse_slurm_gpus(*text, named), *nodes);
  note(gpus_sentence(gpus, options.job.gpus_per_rank.value_or(1),
                     named.empty() ? "the nodes of Slurm's default partition"
                                   : absl::StrCat("the nodes of Slurm's partition ", named)));
  options.plan.gpus_per_node = gpus;
  options.job.node_gpus = gpus;
}

// Returns whether the config names a saved plan, which determines the nodes and ranks that the
// options do not. Stores the loaded config in `job`.
bool names_saved_plan(JobArguments& job) {
  if (job.is_program()) return false;
  auto config = load_config(job);
  if (!config.ok()) return false;  // checked_spec() reports the error
  job.config = *std::move(config);
  return has_saved_plan(*job.config);
}

// Determines the nodes and ranks that the options do not give: one node, and a rank for each of its
// GPUs.
void take_sizes(SlurmSubmitOptions& options, int32_t gpus_per_rank) {
  if (!options.job.nodes) options.job.nodes = 1;
  take_gpus_of_partition(options);
  if (!options.job.ranks_per_node && options.plan.gpus_per_node > 0)
    options.job.ranks_per_node = std::max(options.plan.gpus_per_node / gpus_per_rank, 1);
}

// Refuses a job that does not fit in the memory of the GPUs that its config names, or that Slurm
// reports of the partition's nodes. If neither is known, compares with the largest known GPUs.
absl::Status check_plan(SlurmSubmitOptions& options, const v1::JobSpec& spec) {
  if (!may_have_gpus(spec, options.plan.gpus_per_node)) return absl::OkStatus();
  return check_gpu_memory(options.job, spec, [&](const auto& topologies) {
    std::vector<std::string> names;
    if (options.plan.more.empty()) {
      const auto& text = gpus_of_partitions(options);
      if (text.ok()) names = parse_slurm_gpu_types(*text, partition_of(options.plan));
    }
    return gpu_type_of_names(names, topologies, "as Slurm reports", spec.nodes());
  });
}

// Options passed through may select another partition; sbatch validates the nodes then.
absl::Status check_nodes(const ScriptPlan& plan) {
  if (!plan.more.empty()) return absl::OkStatus();
  const std::string named = partition_of(plan);
  const auto text = output_of({"scontrol", "show", "partition", "-o"}, kSlurmDeadline);
  if (!text.ok()) return absl::OkStatus();  // sbatch reports the reason
  const std::string why = too_many_nodes(parse_slurm_partitions(*text), named, plan.nodes);
  if (why.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(why, ": a smaller -N",
                                                 plan.keeps_failed_nodes ? ", fewer --spares" : "",
                                                 " or another -p is needed"));
}

// Returns why the job is pending; empty if it is not, or if Slurm gives no reason in time.
std::string reason_of_waiting(const std::string& id) {
  for (int tries = 0; tries < kReasonTries; ++tries) {
    const auto reason =
        output_of({"squeue", "-h", "-t", "PENDING", "-j", id, "-o", "%r"}, kSlurmDeadline);
    if (!reason.ok() || reason->empty()) return "";
    const std::string text = waiting_text(reason->substr(0, reason->find('\n')));
    if (!text.empty()) return text;
    std::this_thread::sleep_for(kReasonPeriod);
  }
  return "";
}

int submit(const SlurmSubmitOptions& given) {
  SlurmSubmitOptions options = given;
  const int32_t gpus_per_rank = std::max(options.job.gpus_per_rank.value_or(1), 1);
  const bool has_plan = names_saved_plan(options.job);
  if (has_plan) {
    options.job.node_gpus = options.plan.gpus_per_node;
  } else {
    take_sizes(options, gpus_per_rank);
  }
  // The check writes to the output folder, but a dry run must not.
  const auto spec = checked_spec(options.job, !options.no_check && !options.dry_run);
  if (!spec.ok()) return fail(spec.status());
  if (has_plan && options.plan.gpus_per_node == 0 && options.plan.more.empty() &&
      may_have_gpus(*spec, 0))
    options.plan.gpus_per_node = spec->ranks_per_node() * gpus_per_rank;
  if (auto status = check_plan(options, *spec); !status.ok()) return fail(status);
  if (auto status = check_listener(spec->nodes() + spec->spares(), options.slurm); !status.ok())
    return fail(status);
  const auto muster = daemon::own_executable_path();
  if (!muster.ok()) return fail(muster.status());
  ScriptPlan& plan = options.plan;
  if (plan.job_name.empty()) plan.job_name = spec->name();
  plan.nodes = spec->nodes() + spec->spares();
  plan.keeps_failed_nodes = spec->spares() > 0 || spec->min_nodes() > 0;
  plan.exclusive = !options.share_nodes;
  plan.tasks_per_node = spec->ranks_per_node();
  plan.signal_seconds = signal_lead(plan.signal_seconds, plan.time);
  plan.output_folder = local_output_folder(spec->output_directory());
  plan.command = run_words(options, *spec, *muster);
  const auto script = slurm_script(plan);
  if (!script.ok()) return fail(script.status());
  if (options.dry_run) return print_result(*script);
  if (auto status = check_nodes(plan); !status.ok()) return fail(status);
  const auto path = write_script(*spec, *script);
  if (!path.ok()) return fail(path.status());
  const auto command = sbatch_command(plan, *path);
  if (!command.ok()) return fail(command.status());
  const auto end = run_command(*command, kSbatchDeadline);
  if (!end.ok()) return fail(end.status());
  if (end->exit_code != 0) {
    return fail(absl::InvalidArgumentError(absl::StrCat(
        "sbatch rejects the job: ", std::string(absl::StripAsciiWhitespace(end->errors)),
        "; the script is ", *path)));
  }
  const std::string id(absl::StripAsciiWhitespace(end->output));  // "12", or "12;cluster"
  const std::string waits = reason_of_waiting(id.substr(0, id.find(';')));
  if (options.json)
    return print_result(nlohmann::json{{"slurm_job", id},
                                       {"script", *path},
                                       {"waits", waits},
                                       {"output_directory", spec->output_directory()}}
                            .dump(2) +
                        "\n");
  return print_result(absl::StrCat("Slurm job ", id, " (", plan.job_name, ") on ", plan.nodes,
                                   plan.nodes == 1 ? " node" : " nodes", "; its output is in ",
                                   local_output_folder(spec->output_directory()),
                                   waits.empty() ? "" : "; ", waits, "\n"));
}

void add_sbatch_options(CLI::App& command, SlurmSubmitOptions& options) {
  ScriptPlan& plan = options.plan;
  add_node_options(command, options.job, "-N,--nodes");
  command.add_option("-A,--account", plan.account, "Slurm's account")->type_name("NAME");
  command.add_option("-p,--partition", plan.partition, "Slurm's partition")->type_name("NAME");
  command.add_option("-q,--qos", plan.qos, "Slurm's quality of service")->type_name("NAME");
  command.add_option("-J,--job-name", plan.job_name, "The Slurm job's name (default: the run's)")
      ->type_name("NAME");
  command.add_option("-t,--time", plan.time, "The time limit in sbatch's form")->type_name("TIME");
  command
      .add_option("-d,--dependency", plan.dependency,
                  "A dependency in sbatch's form: afterany:12, singleton")
      ->type_name("WHAT");
  daemon::add_count(command, "--gpus-per-node", plan.gpus_per_node,
                    "GPUs per node; also the default number of ranks", 1, kNodesMax);
  daemon::add_count(command, "--chain", plan.chain,
                    "For runs beyond the time limit: submit this many jobs in sequence, each from "
                    "the newest checkpoint on",
                    1, kChainMax);
  plan.signal_seconds = 300;
  daemon::add_count(command, "--signal-seconds", plan.signal_seconds,
                    "Seconds before the time limit at which ranks save and leave, at most a "
                    "quarter of --time; 0: only when Slurm ends the job",
                    0, 65'535)
      ->capture_default_str();
  command.add_flag("--share-nodes", options.share_nodes,
                   "Request a processor per rank instead of whole nodes; add more with --sbatch, "
                   "for example --cpus-per-task=8, --mem=64G");
  daemon::add_list(
      command, "--sbatch", plan.more, "OPTION",
      "Another option of sbatch, passed unchanged; may be repeated. It overrides the options here");
}

}  // namespace

void declare_slurm_submit(CLI::App& slurm, Action& action) {
  auto options = std::make_shared<SlurmSubmitOptions>();
  options->job.own_workers = true;
  options->job.is_for_plan = true;
  CLI::App* command = slurm.add_subcommand("submit", "Write a job's script and pass it to sbatch");
  command->group("Commands");
  add_config_arguments(*command, options->job, true);
  add_sbatch_options(*command, *options);
  add_recovery_options(*command, options->job);
  add_program_options(*command, options->job);
  add_slurm_options(*command, options->slurm);
  command->add_flag("--no-check", options->no_check,
                    "Skip the check of data and checkpoints: they are not visible from here");
  add_no_plan_option(*command, options->job);
  command->add_flag("--dry-run", options->dry_run, "Print the script; nothing is written");
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster slurm submit --insecure -N 8 -A ACCOUNT -p PARTITION -t 4:00:00 --gpus-per-node 8 "
      "\\\n"
      "      configs/base.yml model_name=llama2-7b run_name=first base_output_directory=/shared\n"
      "  muster slurm submit --insecure -N 8 --spares 1 --chain 10 -t 24:00:00 configs/base.yml "
      "run_name=long "
      "…\n"
      "  muster slurm submit --insecure -N 2 --gpus-per-node 8 --dry-run -- python3 train.py --lr "
      "1e-3");
  on_call(*command, action, options, submit);
}

}  // namespace muster::cli
