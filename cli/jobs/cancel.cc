// muster cancel: ends a job, after a checkpoint by default.
#include <unistd.h>

#include "cli/client.h"
#include "cli/command.h"
#include "cli/jobs/job_view.h"
#include "cli/terminal/terminal.h"
#include "daemon/json/job_json.h"

namespace muster::cli {
namespace {

struct CancelOptions {
  uint64_t job = 0;
  bool force = false;
  CoordinatorTarget coordinator;
  bool json = false;
};

int cancel(const CancelOptions& options) {
  const auto job = Client(options.coordinator).cancel_job(options.job, options.force);
  if (!job.ok()) return fail(job.status());
  return print_result((options.json ? daemon::job_to_json(*job).dump(2) : headline(*job)) + "\n");
}

}  // namespace

void declare_cancel(CLI::App& app, Action& action) {
  auto options = std::make_shared<CancelOptions>();
  CLI::App* command = app.add_subcommand("cancel", "End a job; its ranks save a checkpoint first");
  add_job_argument(*command, options->job);
  command->add_flag("--force", options->force, "Kill the ranks at once, without a checkpoint");
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster cancel 7\n"
      "  muster cancel 7 --force");
  on_call(*command, action, options, cancel);
}

}  // namespace muster::cli
