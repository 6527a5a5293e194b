// muster submit: queues a job at a fleet's coordinator.
#include <unistd.h>

#include <filesystem>

#include <absl/strings/str_cat.h>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/jobs/follow_job.h"
#include "cli/jobs/job_arguments.h"
#include "cli/jobs/job_file.h"
#include "cli/jobs/job_view.h"
#include "cli/jobs/node_gpus.h"
#include "cli/jobs/queue_options.h"
#include "cli/plan/admission.h"
#include "cli/plan/plan_comparison.h"
#include "cli/run/preflight.h"
#include "cli/terminal/terminal.h"
#include "common/process/host_name.h"
#include "daemon/help.h"
#include "daemon/json/job_json.h"
#include "daemon/process.h"

namespace muster::cli {
namespace {

struct SubmitOptions {
  JobArguments job;
  std::string job_file;  // replaces `job`
  std::string team;      // empty: the first one of the token
  QueueOptions queue;
  bool follow = false;
  CoordinatorTarget coordinator;
  bool no_check = false;
  bool json = false;
};

// Stores the fleet's GPUs and the loaded config in options.job, if the number of ranks depends on
// them.
absl::StatusOr<v1::JobSpec> requested_spec(SubmitOptions& options, FleetWorkers& fleet) {
  if (options.job_file.empty()) {
    if (auto status = take_gpus_of_fleet(fleet, options.job); !status.ok()) return status;
    return checked_spec(options.job, !options.no_check);
  }
  if (!options.job.config_path.empty() || options.job.is_program()) {
    return absl::InvalidArgumentError(
        "--job-file contains the whole job: omit the config and the program");
  }
  return read_job_file(options.job_file);
}

// Refuses a job that does not fit in the memory of the fleet's GPUs, or of those that its config
// names. A fleet without GPUs may get some later. Stores the prediction for the compared GPUs in
// the job.
absl::Status check_plan(const SubmitOptions& options, FleetWorkers& fleet, v1::JobSpec& spec) {
  using Type = absl::StatusOr<std::optional<GpuType>>;
  std::optional<jobspec::Topology> gpus;
  const auto find = [&](const auto& topologies) -> Type {
    const auto& workers = fleet.get();
    if (!workers.ok()) return workers.status();
    return gpu_type_of_workers(
        *workers, spec, topologies,
        absl::StrCat("as the workers of ", options.coordinator.address, " report"));
  };
  if (auto status = check_gpu_memory(options.job, spec, find, &gpus); !status.ok()) return status;
  if (gpus) predict(*gpus, known_calibrations(options.job), spec);
  return absl::OkStatus();
}

// Warns when the job uses a folder of this machine and every worker is on another machine.
void warn_of_local_folder(const SubmitOptions& options, const v1::JobSpec& spec,
                          FleetWorkers& fleet, Client& client) {
  if (!options.job_file.empty() || !options.job.working_directory.empty()) return;
  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string();
  const std::string& output = spec.output_directory();
  if (error || (spec.command_size() == 0 && output.rfind(here, 0) != 0)) return;
  const auto& workers = fleet.get(client);
  if (!workers.ok() || workers->workers().empty()) return;
  for (const v1::WorkerInfo& worker : workers->workers())
    if (worker.host() == host_name()) return;
  warn(absl::StrCat("the job uses this machine's folder ", here,
                    ", and no worker is on this machine: it must exist on each worker's machine, "
                    "or set another one with --working-directory FOLDER",
                    spec.command_size() == 0 ? " and base_output_directory=FOLDER" : ""));
}

absl::StatusOr<v1::Job> submit_one(const v1::JobSpec& spec, const std::string& request_id,
                                   Client& client) {
  return submit_with_repeats(client, spec, request_id, kSubmitPatience, [](const auto& loss) {
    warn(absl::StrCat(loss.message(), "; trying again for ", kSubmitPatience.count(), " s"));
  });
}

// Returns the job with the fields of the options that apply to any job.
absl::StatusOr<v1::JobSpec> complete_spec(SubmitOptions& options, FleetWorkers& fleet) {
  auto spec = requested_spec(options, fleet);
  if (!spec.ok()) return spec.status();
  if (!options.team.empty()) spec->set_team(options.team);
  if (auto status = options.queue.apply(*spec); !status.ok()) return status;
  return spec;
}

// Submits a job for each task. Data, checkpoints and memory are checked for the first task only,
// because the others differ in their number. Repeated submissions of a task are one job.
int submit_array(const SubmitOptions& given, const ArrayTasks& tasks, const std::string& id) {
  if (given.follow || !given.job_file.empty())
    return fail(absl::InvalidArgumentError(
        absl::StrCat("--array and ", given.follow ? "--follow" : "--job-file",
                     " cannot be combined: an array is several jobs with different names")));
  SubmitOptions options = given;
  FleetWorkers fleet(options.coordinator);
  Client client(options.coordinator);
  std::vector<v1::Job> jobs;
  v1::JobSpec first;
  absl::Status status;
  for (const int32_t index : tasks.indices) {
    auto arguments = arguments_of_task(given.job, id, index);
    if (!arguments.ok()) return fail(arguments.status());
    options.job = *std::move(arguments);
    auto spec = complete_spec(options, fleet);
    if (spec.ok() && jobs.empty()) status = check_plan(options, fleet, *spec);
    if (!spec.ok() || !status.ok()) return fail(spec.ok() ? status : spec.status());
    options.no_check = true;
    if (jobs.empty()) first = *spec;
    spec->set_planned_step_us(first.planned_step_us());
    spec->set_planned_communication_us(first.planned_communication_us());
    spec->set_planned_data_us(first.planned_data_us());
    spec->set_planned_checkpoint_us(first.planned_checkpoint_us());
    spec->set_planned_memory_bytes(first.planned_memory_bytes());
    spec->set_array(id);
    spec->set_array_index(index);
    spec->set_array_running_max(tasks.running_max);
    auto job = submit_one(*spec, absl::StrCat(id, "-", index), client);
    status = job.status();
    if (!job.ok()) break;
    jobs.push_back(*std::move(job));
  }
  if (!jobs.empty()) warn_of_local_folder(options, first, fleet, client);
  nlohmann::json out = {{"array", id}, {"jobs", nlohmann::json::array()}};
  for (const v1::Job& job : jobs) out["jobs"].push_back(daemon::job_to_json(job));
  int code = 0;
  if (!jobs.empty()) {
    code = print_result(options.json
                            ? out.dump(2) + "\n"
                            : absl::StrCat("array ", id, ": ", jobs.size(), " of ",
                                           tasks.indices.size(), " tasks are submitted, jobs ",
                                           jobs.front().id(), " to ", jobs.back().id(),
                                           "\ncancel it with: muster cancel --array ", id, "\n"));
  }
  return status.ok() ? code : fail(status);
}

int submit(const SubmitOptions& given) {
  SubmitOptions options = given;
  if (options.follow && options.json)
    return fail(absl::InvalidArgumentError(
        "--json and --follow cannot be combined: --json prints only the submission"));
  const auto tasks = options.queue.array();
  if (!tasks.ok()) return fail(tasks.status());
  const auto drawn = daemon::draw_random_id();
  if (!drawn.ok()) return fail(drawn.status());
  const std::string request_id = absl::StrCat(absl::Hex(*drawn));
  if (*tasks) return submit_array(options, **tasks, request_id);
  FleetWorkers fleet(options.coordinator);
  auto spec = complete_spec(options, fleet);
  if (!spec.ok()) return fail(spec.status());
  if (auto status = check_plan(options, fleet, *spec); !status.ok()) return fail(status);
  if (options.follow) {
    return submit_and_follow(options.coordinator, *spec, request_id, [&](Client& client) {
      warn_of_local_folder(options, *spec, fleet, client);
    });
  }
  Client client(options.coordinator);
  const auto submitted = submit_one(*spec, request_id, client);
  if (!submitted.ok()) return fail(submitted.status());
  warn_of_local_folder(options, *spec, fleet, client);
  return print_result(options.json
                          ? daemon::job_to_json(*submitted).dump(2) + "\n"
                          : absl::StrCat(headline(*submitted), "\nfollow it with: muster logs -f ",
                                         submitted->id(), "\n"));
}

}  // namespace

void declare_submit(CLI::App& app, Action& action) {
  auto options = std::make_shared<SubmitOptions>();
  options->job.is_for_plan = true;
  CLI::App* command = app.add_subcommand("submit", "Queue a job at a coordinator");
  add_config_arguments(*command, options->job, true);
  add_rank_options(*command, options->job);
  add_recovery_options(*command, options->job);
  add_program_options(*command, options->job);
  daemon::add_count(*command, "--priority", options->job.priority,
                    "Jobs of higher priority start first", -1'000'000, 1'000'000)
      ->capture_default_str();
  command
      ->add_option("--team", options->team,
                   "One of the teams of your token: its members may do what you may with the job "
                   "(default: the first)")
      ->type_name("NAME");
  options->queue.declare(*command);
  command->add_flag(
      "--no-check", options->no_check,
      "Skip the check of data and checkpoints: they are not visible from this machine");
  add_no_plan_option(*command, options->job);
  add_working_directory_option(*command, options->job);
  CLI::Option* config = command->get_option("config");
  const auto take_file = [&given = *options, config](const std::string& path) {
    given.job_file = path;
    config->required(false);
  };
  command
      ->add_option_function<std::string>("--job-file", take_file,
                                         "A resolved job from `muster k8s render`")
      ->type_name("FILE.json");
  command->add_flag("-f,--follow", options->follow,
                    "Show the job as `muster run` does, and end with its exit code");
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster submit configs/base.yml model_name=llama2-tiny run_name=first steps=100 --ranks 4\n"
      "  muster submit configs/base.yml model_name=llama2-tiny run_name=wide --nodes 2 "
      "--ranks-per-node 4\n"
      "  muster submit --nodes 2 --ranks-per-node 4 --env PATH -- python3 train.py --lr 1e-3\n"
      "  muster submit --follow --nodes 2 --working-directory /shared/me -- ./train.sh\n"
      "  muster submit --after-ok 7 --time-limit 2h --nodes 2 -- ./evaluate.sh\n"
      "  muster submit --array 0-9%3 --nodes 1 -- ./sweep.sh     # ranks have MUSTER_ARRAY_INDEX\n"
      "  id=$(muster submit … --json | jq .id); muster logs -f $id");
  on_call(*command, action, options, submit);
}

}  // namespace muster::cli
