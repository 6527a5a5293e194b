// muster slurm run: the per-job mode. Runs the coordinator on this node, a worker on each node of
// the allocation, and one job, and returns the job's exit code.
#include <poll.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <optional>

#include <absl/strings/str_cat.h>

#include "cli/client.h"
#include "cli/incidents/incident_files.h"
#include "cli/jobs/job_arguments.h"
#include "cli/plan/admission.h"
#include "cli/run/preflight.h"
#include "cli/run/requested_job.h"
#include "cli/run/run_folder.h"
#include "cli/scrape_target.h"
#include "cli/slurm/slurm.h"
#include "cli/slurm/slurm_commands.h"
#include "cli/slurm/slurm_session.h"
#include "cli/slurm/slurm_setup.h"
#include "cli/terminal/terminal.h"
#include "cli/text/first_use.h"
#include "common/files/file_write.h"
#include "common/objects/object_cache.h"
#include "common/process/exit_code.h"

namespace muster::cli {
namespace {

struct SlurmRunOptions {
  JobArguments job;
  SlurmOptions slurm;
  bool chain = false;
};

constexpr auto kReportTime = std::chrono::minutes(2);

// True when its allocations are the tasks of an array.
bool is_chain(const SlurmRunOptions& options, const SlurmJob& slurm) {
  return options.chain && !slurm.array.empty();
}

struct AllocationJob {
  v1::JobSpec spec;
  bool saves = true;
};

// Sets the nodes of the job: those of the allocation that are not spares.
absl::Status fill_in_nodes(const SlurmJob& slurm, JobArguments& arguments) {
  const int32_t spares = arguments.spares.value_or(0);
  if (!arguments.nodes) arguments.nodes = slurm.node_count - spares;
  if (*arguments.nodes < 1 || *arguments.nodes + spares > slurm.node_count) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the allocation has ", slurm.node_count, slurm.node_count == 1 ? " node" : " nodes",
        ", but --nodes ", std::max(*arguments.nodes, 1), " and --spares ", spares, " need ",
        std::max(*arguments.nodes, 1) + spares, ": request -N ",
        std::max(*arguments.nodes, 1) + spares));
  }
  if (!arguments.ranks_per_node) arguments.ranks_per_node = slurm.ranks_per_node;
  if (arguments.default_name.empty()) arguments.default_name = run_name_of(slurm);
  return absl::OkStatus();
}

absl::StatusOr<AllocationJob> allocation_job(const SlurmJob& slurm, JobArguments arguments) {
  if (auto status = fill_in_nodes(slurm, arguments); !status.ok()) return status;
  if (arguments.is_program()) {
    auto spec = load_program(arguments);
    if (!spec.ok()) return spec.status();
    return AllocationJob{*std::move(spec), true};
  }
  auto job = load_job_and_data(arguments, FirstUse::kTokenize);
  if (!job.ok()) return job.status();
  predict_here(arguments, *job);
  return AllocationJob{std::move(job->spec), job->train.enable_checkpointing};
}

absl::StatusOr<std::optional<Preflight>> start_preflight(const v1::JobSpec& spec,
                                                         const RunFolder& folder) {
  if (spec.command_size() > 0) return std::nullopt;
  std::vector<std::string> paths = {folder.file("config.json")};
  // An evaluation (no steps) leaves the config of the training in place.
  if (spec.steps() > 0)
    paths.push_back(local_output_folder(spec.output_directory()) + "/config.json");
  for (const std::string& path : paths) {
    if (auto status = write_file_atomically(path, spec.train_config_json(), {.mode = 0600});
        !status.ok())
      return status;
  }
  auto preflight = Preflight::start(folder.file("config.json"), folder.file("check.log"),
                                    Preflight::Ranks::kElsewhere);
  if (!preflight.ok()) return preflight.status();
  return std::optional(*std::move(preflight));
}

absl::Status wait_until_ready(EmbeddedFleet& fleet) {
  while (true) {
    const auto ready = fleet.check_ready();
    if (!ready.ok()) return ready.status();
    if (*ready) return absl::OkStatus();
    if (auto status = fleet.health(); !status.ok()) return status;
    std::array<pollfd, 2> fds = {pollfd{fleet.ready_fd(), POLLIN, 0},
                                 pollfd{fleet.coordinator().pidfd(), POLLIN, 0}};
    poll(fds.data(), fds.size(), 1000);
  }
}

// Requests the next allocation if one is needed, and reports it. The job's folder stays; Slurm
// decides about further attempts.
int report_leave(const SlurmJob& slurm, const LeaveDecision& leave_decision,
                 const Allocation& allocation, NextAllocation& next_allocation) {
  if (leave_decision.requeue) next_allocation.request(allocation);
  warn(absl::StrCat("Slurm job ", slurm.id, " ",
                    leave_decision.requeue ? next_allocation.outcome()
                    : leave_decision.is_queued
                        ? "was requeued from outside of the job"
                        : absl::StrCat("is not queued again: ", leave_decision.reason)));
  return to_int(ExitCode::kPreempted);
}

// An error that another node, or the same node later, may not have.
AllocationEnd unknown_error(const absl::Status& status) { return {fail(status), Verdict::kNone}; }

// An error in the arguments, the config or the preflight check: every later allocation would have
// it, too.
AllocationEnd input_error(const absl::Status& status) {
  return {fail(status), absl::IsInvalidArgument(status) ? Verdict::kInput : Verdict::kNone};
}

// The next allocation starts from the command line of the script.
void warn_of_revision(const v1::Job& job) {
  if (job.revision() <= 1 || job.revisions_size() == 0) return;
  std::string changes;
  for (const v1::Revision& revision : job.revisions())
    if (!revision.pending() && !revision.undone())
      absl::StrAppend(&changes, changes.empty() ? "" : ", ", revision.change());
  warn(
      absl::StrCat("the next allocation starts from the script's command line, without the updates "
                   "of this one: add them to the script: ",
                   shown(changes)));
}

AllocationEnd follow(const SlurmRunOptions& options, const SlurmJob& slurm,
                     const AllocationJob& job, const SlurmSignals& signals, EmbeddedFleet& fleet,
                     WorkerStep& step, const RunFolder& folder) {
  Client client({.address = fleet.address()});
  Output output(STDOUT_FILENO), notice(STDERR_FILENO);
  LogPrinter printer(
      output, notice,
      {.steps = job.spec.steps(), .ranks = job.spec.nodes() * job.spec.ranks_per_node()});
  printer.notice(absl::StrCat("Slurm job ", slurm.id, ": ", job.spec.nodes(), " of ",
                              slurm.node_count, " nodes (", slurm.nodes, ") with ",
                              job.spec.ranks_per_node(),
                              " ranks each; inspect it with muster "
                              "status --coordinator ",
                              fleet.address()));
  absl::StatusOr<int> end = 0;
  v1::Job last;
  std::optional<LeaveDecision> leave_decision;
  Allocation allocation;
  const AllocationSource by = is_chain(options, slurm)   ? AllocationSource::kChain
                              : options.slurm.no_requeue ? AllocationSource::kNone
                                                         : AllocationSource::kRequeue;
  // A chain has as many tasks as the user requested.
  NextAllocation next_allocation(
      slurm, local_output_folder(job.spec.output_directory()) + "/muster/slurm_turns.json", by,
      options.slurm.allocations_max.value_or(by == AllocationSource::kChain ? kAllocationsMax
                                                                            : kAllocationsDefault));
  {
    SlurmSession session({slurm, signals, fleet, step, printer, client, folder, next_allocation,
                          std::chrono::seconds(options.slurm.leave_seconds)},
                         job.spec, job.saves);
    end = session.follow();
    last = session.job();
    leave_decision = session.leave_decision();
    allocation = session.allocation();
  }
  if (last.incident().id() != 0 && fleet.has_coordinator())
    save_all_incidents(fleet.address(), last.id(), folder, printer);
  printer.finish();
  AllocationEnd result;
  if (leave_decision) {
    result = {report_leave(slurm, *leave_decision, allocation, next_allocation), Verdict::kJob};
    if (leave_decision->requeue) warn_of_revision(last);
  } else {
    result.exit_code = end.ok() ? *end : fail(end.status());
    result.verdict = end.ok() ? Verdict::kJob : Verdict::kNone;
    result.is_futile = last.is_futile();
    if (result.exit_code != 0)
      warn(absl::StrCat("exit code ", result.exit_code, "; logs are in ", folder.path()));
    // A failed task also counts as an allocation: the next task tries again.
    if (by == AllocationSource::kChain && !ends_chain(result)) {
      next_allocation.request(allocation);
      warn(absl::StrCat("Slurm job ", slurm.id, " ", next_allocation.outcome()));
    }
  }
  if (next_allocation.was_last()) result.verdict = Verdict::kAllocations;
  return result;
}

AllocationEnd run_in(const SlurmRunOptions& options, const SlurmJob& slurm,
                     const AllocationJob& job, const SlurmSignals& signals, RunFolder& folder) {
  const auto host = listen_host(slurm, options.slurm);
  if (!host.ok()) return folder.discard(), unknown_error(host.status());
  auto preflight = start_preflight(job.spec, folder);
  if (!preflight.ok()) return folder.discard(), unknown_error(preflight.status());
  CoordinatorOptions coordinator{.host = *host,
                                 .flags = {"--ignore-sigterm", "--cancel-grace-seconds",
                                           absl::StrCat(options.slurm.leave_seconds)},
                                 .reuses_http_port = options.slurm.metrics_port.has_value()};
  if (options.slurm.insecure) coordinator.flags.emplace_back("--insecure");
  auto fleet = EmbeddedFleet::start(folder.path(), std::move(coordinator));
  if (!fleet.ok()) return folder.discard(), unknown_error(fleet.status());
  if (auto status = wait_until_ready(**fleet); !status.ok()) return unknown_error(status);
  const auto scrapes = scrape_folder(
      slurm, options.slurm, local_output_folder(job.spec.output_directory()) + "/prometheus");
  if (!scrapes.ok()) return unknown_error(scrapes.status());
  // Each job has its own coordinator, which numbers its jobs from 1.
  const std::string cluster = scrape_cluster(slurm, is_chain(options, slurm));
  ScrapeTarget target(absl::StrCat(*scrapes, "/", scrape_owner(slurm).coordinator_file()),
                      {.job = "muster-coordinator", .node = slurm.node, .cluster = cluster});
  if (options.slurm.metrics_port) {
    if (auto status = target.write((*fleet)->shown_host(), (*fleet)->http_port()); !status.ok())
      warn(std::string(status.message()));
  }
  auto plan =
      step_plan(slurm, options.slurm, (*fleet)->address(), job.spec.ranks_per_node(),
                {folder.path(), local_output_folder(job.spec.output_directory()), *scrapes});
  if (!plan.ok()) return unknown_error(plan.status());
  plan->scrape_folder = *scrapes;
  plan->scrape_owner = scrape_owner(slurm);
  plan->cluster = cluster;
  auto step = WorkerStep::start(*plan);
  if (!step.ok()) return unknown_error(step.status());
  if (preflight->has_value()) {
    if (auto status = (*preflight)->result(); !status.ok()) return input_error(status);
  }
  const AllocationEnd end = follow(options, slurm, job, signals, **fleet, **step, folder);
  // Nsight Systems writes its report after its program has ended.
  end_worker_step(slurm, options.slurm.profile.empty() ? Duration() : Duration(kReportTime));
  constexpr auto kStopGrace = std::chrono::milliseconds(1500);
  (*fleet)->stop(kStopGrace);
  return end;
}

AllocationEnd run_job(const SlurmRunOptions& options, const SlurmJob& slurm,
                      const SlurmSignals& signals) {
  if (is_chain(options, slurm)) {
    if (auto status = check_chain(slurm, query_slurm_job(slurm)); !status.ok())
      return input_error(status);
  }
  const auto job = allocation_job(slurm, options.job);
  if (!job.ok()) return input_error(job.status());
  auto folder = RunFolder::create(local_output_folder(job->spec.output_directory()));
  if (!folder.ok()) return unknown_error(folder.status());
  return run_in(options, slurm, *job, signals, **folder);
}

int run(const SlurmRunOptions& options) {
  const auto signals = SlurmSignals::block();
  if (!signals.ok()) return fail(signals.status());
  const auto slurm = enter_slurm_job();
  if (!slurm.ok()) return fail(slurm.status());
  const AllocationEnd end = run_job(options, *slurm, *signals);
  if (!is_chain(options, *slurm) || !ends_chain(end)) return end.exit_code;
  const absl::Status status = cancel_waiting_tasks(*slurm);
  warn(status.ok()
           ? absl::StrCat("the chain has ended: cancelled the pending tasks of ", slurm->array)
           : absl::StrCat("cannot cancel the pending tasks of ", slurm->array, ": ",
                          std::string(status.message())));
  return end.exit_code;
}

}  // namespace

void declare_slurm_run(CLI::App& slurm, Action& action) {
  auto options = std::make_shared<SlurmRunOptions>();
  options->job.own_workers = true;
  options->job.is_for_plan = true;
  CLI::App* command = slurm.add_subcommand(
      "run", "In an sbatch script: run one job on the nodes of the allocation");
  command->group("Commands");
  add_config_arguments(*command, options->job, true);
  add_node_options(*command, options->job, "--nodes");
  add_recovery_options(*command, options->job);
  add_program_options(*command, options->job);
  add_no_plan_option(*command, options->job);
  add_slurm_options(*command, options->slurm);
  command
      ->add_option("--profile", options->slurm.profile,
                   "Profile the first node's ranks with Nsight Systems (nsys), to FILE.nsys-rep")
      ->type_name("FILE");
  command->add_flag(
      "--chain", options->chain,
      "The tasks of this array (sbatch --array=1-10%1) run one job, each from its newest "
      "checkpoint on; pending tasks are cancelled when the job has finished or its input is bad");
  // Used by muster slurm submit, because the jobs of a chain have different numbers.
  command->add_option("--default-name", options->job.default_name, "Of a run without a name")
      ->group("");
  command->footer(
      "Examples, in a script for sbatch (docs/slurm.md):\n"
      "  #SBATCH -N 8 --requeue --signal=B:USR1@300\n"
      "  exec muster slurm run configs/base.yml model_name=llama2-7b run_name=first "
      "base_output_directory=/shared\n"
      "  exec muster slurm run --spares 1 -- python3 train.py --lr 1e-3\n"
      "\n"
      "The output folder must exist on every node. Ranks on each node: --ranks-per-node, else "
      "sbatch's --ntasks-per-node, else the node's GPUs.\nSIGUSR1 saves a checkpoint and requeues "
      "the job, and so does SIGTERM at the time limit or on preemption; scancel saves a checkpoint "
      "and ends it.\n"
      "The exit code is the job's; 75 if it left on request.");
  on_call(*command, action, options, run);
}

}  // namespace muster::cli
