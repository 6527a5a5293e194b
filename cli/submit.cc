// muster submit: a job for a fleet's coordinator.
#include <unistd.h>

#include <absl/strings/str_cat.h>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/job_arguments.h"
#include "cli/job_view.h"
#include "cli/preflight.h"
#include "cli/terminal.h"
#include "daemon/process.h"

namespace muster::cli {
namespace {

struct SubmitOptions {
  JobArguments job;
  CoordinatorTarget coordinator;
  bool no_check = false;
  bool json = false;
};

int submit(const SubmitOptions& options) {
  const auto spec = checked_spec(options.job, !options.no_check);
  if (!spec.ok()) return fail(spec.status());
  const auto request_id = daemon::draw_random_id();
  if (!request_id.ok()) return fail(request_id.status());
  Client client(options.coordinator);
  const auto submitted = submit_with_repeats(
      client, *spec, absl::StrCat(absl::Hex(*request_id)), kSubmitPatience,
      [](const absl::Status& loss) {
        warn(absl::StrCat(loss.message(), "; trying again for ", kSubmitPatience.count(), " s"));
      });
  if (!submitted.ok()) return fail(submitted.status());
  return print_result(options.json
                          ? job_to_json(*submitted).dump(2) + "\n"
                          : absl::StrCat(headline(*submitted), "\nfollow it with: muster logs -f ",
                                         submitted->id(), "\n"));
}

}  // namespace

void declare_submit(CLI::App& app, Action& action) {
  auto options = std::make_shared<SubmitOptions>();
  CLI::App* command = app.add_subcommand("submit", "Queue a job at a coordinator");
  add_config_arguments(*command, options->job, true);
  add_rank_options(*command, options->job);
  add_recovery_options(*command, options->job);
  add_program_options(*command, options->job);
  command->add_option("--priority", options->job.priority, "Higher goes first")
      ->type_name("N")
      ->check(whole_number(-1'000'000, 1'000'000))
      ->capture_default_str();
  command->add_flag(
      "--no-check", options->no_check,
      "Skip the check of data and checkpoints: they are not visible from this machine");
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster submit configs/base.yml model_name=llama2-tiny run_name=first steps=100 --ranks 4\n"
      "  muster submit configs/base.yml model_name=llama2-tiny run_name=wide --nodes 2 "
      "--ranks-per-node 4\n"
      "  muster submit --nodes 2 --ranks-per-node 4 --env PATH -- python3 train.py --lr 1e-3\n"
      "  id=$(muster submit … --json | jq .id); muster logs -f $id");
  on_call(*command, action, options, submit);
}

}  // namespace muster::cli
