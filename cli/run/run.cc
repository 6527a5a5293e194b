// muster run: the embedded mode. Starts a coordinator, a worker and the ranks, follows them, and
// leaves no process running.
#include <unistd.h>

#include <filesystem>
#include <optional>

#include <absl/strings/str_cat.h>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/incidents/incident_files.h"
#include "cli/jobs/job_arguments.h"
#include "cli/jobs/job_view.h"
#include "cli/jobs/page_address.h"
#include "cli/plan/admission.h"
#include "cli/run/embedded_fleet.h"
#include "cli/run/interrupts.h"
#include "cli/run/local_gpu_check.h"
#include "cli/run/preflight.h"
#include "cli/run/requested_job.h"
#include "cli/run/run_folder.h"
#include "cli/run/run_input.h"
#include "cli/run/run_session.h"
#include "cli/terminal/terminal.h"
#include "cli/terminal/wait_readable.h"
#include "cli/text/first_use.h"
#include "common/files/file_write.h"
#include "common/objects/object_cache.h"
#include "common/process/exit_code.h"
#include "common/time/time.h"
#include "daemon/help.h"
#include "daemon/json/job_json.h"
#include "jobspec/files/value.h"

namespace muster::cli {
namespace {

constexpr int32_t kRunLeaveSecondsMax = 86'400;

struct RunOptions {
  JobArguments job;
  std::optional<int32_t> leave_seconds;
  bool json = false;
  bool page = false;  // prints the page's address
  std::string input = kInputOfRank0;
};

// Waits until the check has passed and the coordinator, which starts in parallel, is ready; then
// starts the worker. Ctrl-C cancels it.
absl::Status bring_up(EmbeddedFleet& fleet, std::optional<Preflight>& preflight,
                      Interrupts& interrupts, int32_t slots, int input_fd) {
  bool ready = false, checked = !preflight;
  while (!ready || !checked) {
    std::vector<pollfd> fds = {readable(interrupts.fd()), readable(fleet.coordinator().pidfd()),
                               readable(ready ? -1 : fleet.ready_fd()),
                               readable(checked ? -1 : preflight->process().pidfd())};
    wait_readable(
        fds, checked ? std::nullopt : std::optional(monotonic_now() + Preflight::kOutputPeriod));
    if (interrupts.take() > 0) return absl::CancelledError("interrupted");
    if (!checked) preflight->show_output();
    if (fds[3].revents != 0) {
      if (auto status = preflight->result(); !status.ok()) return status;
      checked = true;
    }
    if (auto status = fleet.health(); !status.ok()) return status;
    const auto is_ready = fleet.check_ready();
    if (!is_ready.ok()) return is_ready.status();
    ready = *is_ready;
  }
  return fleet.start_worker(slots, input_fd);
}

CoordinatorOptions coordinator_options(const RunOptions& options) {
  CoordinatorOptions coordinator;
  // A browser stays at its address.
  coordinator.reuses_http_port = options.page;
  if (options.leave_seconds) {
    coordinator.flags.insert(coordinator.flags.end(),
                             {"--cancel-grace-seconds", absl::StrCat(*options.leave_seconds)});
  }
  return coordinator;
}

int submit_and_follow(const RunOptions& options, const RequestedJob& job, EmbeddedFleet& fleet,
                      Interrupts& interrupts, const RunFolder& folder) {
  Client client({.address = fleet.address()});
  Output output(STDOUT_FILENO), notice(STDERR_FILENO);
  // stdout is reserved for the final object with --json.
  LogPrinter printer(
      options.json ? notice : output, notice,
      {.steps = job.spec.steps(), .ranks = job.ranks(), .thin_steps = true, .live = true});
  printer.notice(job.headline);
  if (options.page)
    printer.notice(absl::StrCat(
        "page: ",
        page_address(absl::StrCat(fleet.shown_host(), ":", fleet.http_port()), false, 0)));
  absl::StatusOr<int> end = 0;
  v1::Job last;
  ShutdownDeadline time;
  {
    RunSession session(fleet, interrupts, printer, client, job, folder, options.leave_seconds);
    end = session.follow();
    last = session.job();
    time = session.time();
    // The streams end here, before the coordinator that serves them.
  }
  const bool was_interrupted = end.ok() && *end == to_int(ExitCode::kInterrupted);
  // A run that leaves does not wait for a coordinator that has not reported the job's end.
  const bool can_fetch_incidents =
      fleet.has_coordinator() && (!was_interrupted || is_terminal_state(last.state()));
  if (last.incident().id() != 0 && can_fetch_incidents) {
    save_all_incidents(fleet.address(), last.id(), folder, printer);
  } else if (last.incident().id() != 0) {
    printer.notice(absl::StrCat("an earlier state of incident ", last.incident().id(), " is in ",
                                folder.path()));
  }
  if (fleet.worker() != nullptr) fleet.stop(time.stop_grace(monotonic_now()));
  interrupts.release();
  const bool was_accepted = last.id() != 0;
  if (!end.ok()) printer.finish();
  int exit_code = end.ok() ? *end : fail(end.status());
  if (options.json && was_accepted) output.write(daemon::job_to_json(last).dump(2) + "\n");
  // A finished job keeps its exit code, unless the object was requested and could not be written.
  const int unwritten = end_of_output(output.error());
  if (unwritten != 0 && (was_interrupted || options.json)) exit_code = unwritten;
  if (was_accepted && exit_code != 0 && exit_code != to_int(ExitCode::kInterrupted)) {
    printer.notice(absl::StrCat("exit code ", exit_code, "; logs are in ", folder.path()));
  }
  return exit_code;
}

// Returns nullopt for a program: its files are not checked.
absl::StatusOr<std::optional<Preflight>> start_preflight(const v1::JobSpec& spec,
                                                         const RunFolder& folder, bool no_plan) {
  if (spec.command_size() > 0) return std::nullopt;
  const std::string path = folder.file("config.json");
  if (auto status = write_file_atomically(path, spec.train_config_json(), {.mode = 0600});
      !status.ok()) {
    return status;
  }
  auto preflight =
      Preflight::start(path, folder.file("check.log"), Preflight::Ranks::kHere, no_plan);
  if (!preflight.ok()) return preflight.status();
  return std::optional(*std::move(preflight));
}

int run_job(const RunOptions& options, const RequestedJob& job, RunFolder& folder,
            Interrupts& interrupts) {
  auto preflight = start_preflight(job.spec, folder, options.job.no_plan);
  if (!preflight.ok()) return folder.discard(), fail(preflight.status());
  auto fleet = EmbeddedFleet::start(folder.path(), coordinator_options(options));
  if (!fleet.ok()) return folder.discard(), fail(fleet.status());
  const auto input = RunInput::of(job.spec.command_size() > 0 && options.input != kNoInput);
  if (!input.ok()) return (*fleet)->kill(), folder.discard(), fail(input.status());
  const absl::Status up = bring_up(**fleet, *preflight, interrupts, job.ranks(), input->fd());
  if (!up.ok()) {
    (*fleet)->kill();
    folder.discard();
    return absl::IsCancelled(up) ? to_int(ExitCode::kInterrupted) : fail(up);
  }
  // An evaluation (no steps) leaves the config of the training in place.
  if (job.spec.command_size() == 0 && job.spec.steps() > 0) {
    const std::string kept = local_output_folder(job.spec.output_directory()) + "/config.json";
    if (auto status = write_file_atomically(kept, job.spec.train_config_json()); !status.ok())
      return fail(status);
  }
  return submit_and_follow(options, job, **fleet, interrupts, folder);
}

int run(const RunOptions& options) {
  auto interrupts = Interrupts::block();
  if (!interrupts.ok()) return fail(interrupts.status());
  const auto job = requested_job(options.job);
  if (!job.ok()) return fail_or_cancelled(job.status());
  if (job->spec.nodes() != 1) {
    return fail(absl::InvalidArgumentError(
        absl::StrCat("muster run uses this machine only, but the job has ", job->spec.nodes(),
                     " nodes; use --ranks, or muster submit with a coordinator")));
  }
  if (auto status = check_local_gpus(job->spec); !status.ok()) return fail(status);
  if (auto status = check_start_needs("muster run", start_needs(*job)); !status.ok())
    return fail(status);
  auto folder = RunFolder::create(local_output_folder(job->spec.output_directory()));
  if (!folder.ok()) return fail(folder.status());
  return run_job(options, *job, **folder, **interrupts);
}

}  // namespace

void declare_run(CLI::App& app, Action& action) {
  auto options = std::make_shared<RunOptions>();
  options->job.own_workers = true;
  options->job.is_for_plan = true;
  CLI::App* command = app.add_subcommand(
      "run",
      "Train on this machine: starts all processes, follows the job, and stops them at its end");
  add_config_arguments(*command, options->job, true);
  add_rank_options(*command, options->job);
  add_recovery_options(*command, options->job);
  add_program_options(*command, options->job);
  add_no_plan_option(*command, options->job);
  daemon::add_count(*command, "--leave-seconds", options->leave_seconds,
                    "Grace for ranks to save a checkpoint after Ctrl-C or SIGTERM, in seconds "
                    "(default: 4 s, and as long as a save makes progress); must be shorter than "
                    "the time after which this program is killed",
                    1, kRunLeaveSecondsMax);
  command
      ->add_option("--stdin", options->input,
                   "For a program behind --: rank0 gives this program's standard input, a pipe, a "
                   "file or the terminal, to rank 0; none gives it to no rank")
      ->type_name("rank0|none")
      ->check(CLI::IsMember({kInputOfRank0, kNoInput}).description(""))
      ->capture_default_str();
  command->add_flag("--page", options->page,
                    "Print the address of the page that shows the run (docs/page.md)");
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster run configs/base.yml model_name=llama2-tiny run_name=first steps=20 --ranks 4\n"
      "  muster run configs/base.yml model_name=llama2-tiny run_name=book "
      "base_output_directory=out \\\n"
      "      dataset_type=shards dataset_path=shards tokenizer_path=tokenizer.model \\\n"
      "      steps=300 per_device_batch_size=4 learning_rate=2e-3 --ranks 4\n\n"
      "Command lines of MaxText, Pax and AXLearn may be pasted as they are:\n"
      "  muster run python3 MaxText/train.py MaxText/configs/base.yml model_name=llama2-tiny "
      "run_name=first hardware=cpu\n"
      "  muster run --fdl_config=paxml.contrib.gpu.scripts_gpu.configs.Synthetic126M "
      "--fdl.MAX_STEPS=3 \\\n"
      "      --fdl.PERCORE_BATCH_SIZE=1 --job_log_dir=out/first --ranks 2\n"
      "  muster run --module=text.gpt.c4_trainer --config=fuji-test --trainer_dir=out/fuji "
      "--data_dir=FAKE \\\n"
      "      --jax_backend=cpu\n\n"
      "A program of your own, as torchrun would start it (docs/any-program.md):\n"
      "  muster run --ranks 4 -- python3 train.py --lr 1e-3\n\n"
      "The same command again resumes from the newest checkpoint in "
      "base_output_directory/run_name.\n"
      "Ctrl-C requests a checkpoint, reports its progress and leaves; a second one kills. The exit "
      "code is the job's; 130 after Ctrl-C.");
  on_call(*command, action, options, run);
}

}  // namespace muster::cli
